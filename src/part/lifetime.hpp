#pragma once
// The life of one half of a channel: its failure, and its users.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/status.hpp"

namespace larklane::part {

/// The error of one request: set once, by any thread. Thread safety: thread-safe.
class FailureSlot {
 public:
  void set(Status status, std::string text);
  /// acquire: pairs with set()'s release, so that text() is whole.
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  Status status() const noexcept;
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Status status_;
  std::string text_;
};

/// Movers of one channel in this process. A mover of shared copies reads the block once more after
/// the round is complete: the block must stay open until the mover has left. After a failure no
/// mover enters, and the channel is quiet when the last one has left. Thread safety: thread-safe.
class InUse {
 public:
  /// The caller calls leave(), whether it may move or not. False: shut, so it moves nothing.
  [[nodiscard]] bool enter() noexcept { return enter(kOne).may_move; }

  /// The same with a cargo; cargoes are added up modulo 2^32.
  struct Entry {
    bool may_move;
    std::uint32_t cargo;  ///< of all movers so far
  };
  /// @param one  one_with(cargo)
  [[nodiscard]] Entry enter(std::uint64_t one) noexcept {
    // acquire: pairs with shut()'s release.
    const std::uint64_t before = movers_.fetch_add(one, std::memory_order_acquire);
    return {(movers(before) & kShut) == 0, static_cast<std::uint32_t>((before + one) >> 32)};
  }
  static constexpr std::uint64_t one_with(std::uint32_t cargo) noexcept {
    return std::uint64_t{cargo} << 32 | kOne;
  }
  /// True: it is quiet now.
  bool leave() noexcept {
    // acq_rel: the last mover acquires the copies of all others; pairs with wait_until_free(),
    // is_quiet() and the other movers.
    return movers(movers_.fetch_sub(kOne, std::memory_order_acq_rel)) == kShut + 1;
  }
  /// From now on no mover may move. True: it is quiet.
  bool shut() noexcept {
    // acq_rel: as in leave().
    return (movers(movers_.fetch_or(kShut, std::memory_order_acq_rel)) & ~kShut) == 0;
  }
  /// Is no mover inside?
  bool is_free() const noexcept {
    // acquire: as in is_quiet().
    return (movers(movers_.load(std::memory_order_acquire)) & ~kShut) == 0;
  }
  bool is_quiet() const noexcept {
    // acquire: pairs with leave()'s release.
    return movers(movers_.load(std::memory_order_acquire)) == kShut;
  }
  /// No round is active: the movers inside are leaving, at most a piece away.
  void wait_until_free() const noexcept;

 private:
  static constexpr std::uint64_t kOne = 1;
  static constexpr std::uint32_t kShut = std::uint32_t{1} << 31;
  static constexpr std::uint32_t movers(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word);
  }
  std::atomic<std::uint64_t> movers_{0};  ///< the high half: their cargo
};

}  // namespace larklane::part
