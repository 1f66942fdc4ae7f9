#pragma once
// Operations that wait for a peer's answer, by numbers that the peer sends back.

#include <cstdint>
#include <memory>

#include "base/spin_lock.hpp"
#include "base/status.hpp"
#include "base/thread_safety.hpp"
#include "msg/protocol/operation.hpp"

namespace larklane::msg {

// Thread safety: thread-safe.
// Invariants:
// 1. A number is a place (from 1) and how often it has been used: a late or invented one finds
//    nothing, or, after 4096 uses, an operation that waits for the same peer all the same.
// 2. What was added is taken out once.
class Awaited {
 public:
  explicit Awaited(std::uint32_t most) noexcept : most_(most) {}

  /// From now on an answer or a failure may finish it: it is the caller's again when take() says
  /// so.
  /// @param places  in one of the first so many
  /// @return its number; 0: as many wait as may, or there is no memory
  std::uint32_t add(Operation& operation, std::uint32_t places = UINT32_MAX) noexcept;
  /// The place in a number, from 0.
  static std::uint32_t place_of(std::uint32_t number) noexcept { return (number & kPlaceMask) - 1; }
  /// @param number  what a peer has sent @return null: nothing of that connection waits under it
  Operation* take(std::uint32_t number, const Connection& connection) noexcept;
  /// The same of one that goes on waiting. With the lane's lock held, as long as it is used.
  Operation* find(std::uint32_t number, const Connection& connection) noexcept;
  /// Of one that waits for a write into its memory, which names its place alone.
  /// @return null: none in that place waits for that of that connection
  Operation* take_asking(std::uint32_t place, const Connection& connection) noexcept;
  /// How far the search for what waits over a connection has come. Thread safety: single-owner.
  struct Sweep {
    std::uint32_t place = 0;
  };
  enum class Which : bool { answers, all };
  /// The next that waits over `connection`, for an answer or also for a write into its memory;
  /// null: of those that waited when the search began none is left.
  Operation* take_one_of(const Connection& connection, Which which, Sweep& sweep) noexcept;
  /// The registered memory of the next one that waits for a write into it, and still does: the
  /// caller's now. Null: of those that waited when the search began none has any.
  net::Memory* take_memory_of_asking(const Connection& connection, Sweep& sweep) noexcept;
  std::uint32_t count() noexcept;

 private:
  static constexpr std::uint32_t kPlaceBits = 20;
  static constexpr std::uint32_t kPlaceMask = (1u << kPlaceBits) - 1;
  struct Place {
    Operation* operation = nullptr;
    std::uint32_t uses = 0;
    std::uint32_t next_free = 0;
  };
  bool grow_locked() noexcept LARKLANE_REQUIRES(lock_);
  Operation* find_locked(std::uint32_t number, const Connection& connection) noexcept
      LARKLANE_REQUIRES(lock_);
  Operation* take_locked(std::uint32_t place) noexcept LARKLANE_REQUIRES(lock_);

  const std::uint32_t most_;
  SpinLock lock_;
  std::unique_ptr<Place[]> places_ LARKLANE_GUARDED_BY(lock_);
  std::uint32_t size_ LARKLANE_GUARDED_BY(lock_) = 0;
  std::uint32_t free_ LARKLANE_GUARDED_BY(lock_) = 0;  // the number of the first; 0: none
  std::uint32_t count_ LARKLANE_GUARDED_BY(lock_) = 0;
};

}  // namespace larklane::msg
