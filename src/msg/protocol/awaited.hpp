#pragma once
// Table of operations that wait for a peer's answer, by numbers that the peer sends back.

#include <cstdint>
#include <memory>

#include "base/spin_lock.hpp"
#include "base/status.hpp"
#include "base/thread_safety.hpp"
#include "msg/protocol/operation.hpp"

namespace larklane::msg {

// Thread safety: thread-safe.
// Invariants:
// 1. A number is a place (from 1) and the place's count of uses. A late or invented number finds
//    nothing. After 4096 uses it may find another operation, but one that waits for the same peer.
// 2. Each added operation is taken out once.
class Awaited {
 public:
  /// @param most  operations; sends of ordinary messages have no limit but that of the numbers
  explicit Awaited(std::uint32_t most) noexcept : most_(most) {}

  /// From now on an answer or a failure may finish the operation. The caller owns it again if
  /// take() returns it.
  /// @param places  only the first so many places may be used
  /// @return its number; 0: the table is full, or memory ran out
  std::uint32_t add(Operation& operation, std::uint32_t places = UINT32_MAX) noexcept;
  /// The place in a number, from 0.
  static std::uint32_t place_of(std::uint32_t number) noexcept { return (number & kPlaceMask) - 1; }
  /// The count of uses in a number.
  static std::uint32_t use_of(std::uint32_t number) noexcept { return number >> kPlaceBits; }
  /// @param number  as a peer sent it: any value @return null: no operation of that connection
  ///   waits under it
  Operation* take(std::uint32_t number, const Connection& connection) noexcept;
  /// As take(), but the operation goes on waiting. The caller holds the lane's lock while it uses
  /// it.
  Operation* find(std::uint32_t number, const Connection& connection) noexcept;
  /// Takes an operation that waits for a write into its memory; the write's number is its place
  /// alone.
  /// @return null: the place has no such operation of that connection
  Operation* take_asking(std::uint32_t place, const Connection& connection) noexcept;
  /// Position of a search through the table. Thread safety: single-owner.
  struct Sweep {
    std::uint32_t place = 0;
  };
  enum class Which : bool { answers, all };
  /// Takes the next operation that waits over `connection`: for an answer, or also for a write into
  /// its memory. Null: no operation that waited when the search began is left.
  Operation* take_one_of(const Connection& connection, Which which, Sweep& sweep) noexcept;
  /// Takes the registered memory of the next operation that waits for a write into it. The
  /// operation goes on waiting. Null: no operation that waited when the search began has any.
  net::Memory* take_memory_of_asking(const Connection& connection, Sweep& sweep) noexcept;
  enum class Decision : std::uint8_t { stays, leaves, leaves_substitute };
  /// Does with an operation of this table what decide(number) says. `stays` also if it is over.
  /// @param operation  lives @param substitute  waits in its place for `leaves_substitute`
  template <class Decide>
  Decision release(Operation& operation, Operation& substitute, Decide&& decide) noexcept {
    const SpinGuard guard(lock_);
    const std::uint32_t number = operation.awaited;
    if (number == 0) return Decision::stays;
    const Decision decision = decide(number);
    if (decision == Decision::leaves) (void)take_locked(number & kPlaceMask);
    if (decision != Decision::leaves_substitute) return decision;
    places_[(number & kPlaceMask) - 1].operation = &substitute;
    substitute.awaited = number;
    operation.awaited = 0;
    return decision;
  }
  /// Does an operation wait over `connection`? A large table is not searched: true.
  bool may_have_one_of(const Connection& connection) noexcept;
  /// Does a send of an ordinary message with this number of its communicator wait?
  bool has_ordinary(const Connection& connection, std::uint32_t number) noexcept;
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
  std::uint32_t free_ LARKLANE_GUARDED_BY(lock_) = 0;  // number of the first free place; 0: none
  std::uint32_t count_ LARKLANE_GUARDED_BY(lock_) = 0;
};

}  // namespace larklane::msg
