#pragma once
// A lock of one byte, for critical sections of some tens of instructions.

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "base/thread_safety.hpp"

namespace larklane {

/// No order among waiters. Thread safety: thread-safe.
class LARKLANE_CAPABILITY("spin lock") SpinLock {
 public:
  SpinLock() noexcept = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  void lock() noexcept LARKLANE_ACQUIRE() {
    // acquire: pairs with unlock()'s release.
    while (is_held_.exchange(true, std::memory_order_acquire)) [[unlikely]] wait_slow();
  }
  /// acquire: pairs with unlock()'s release.
  bool try_lock() noexcept LARKLANE_TRY_ACQUIRE(true) {
    return !is_held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept LARKLANE_RELEASE() { is_held_.store(false, std::memory_order_release); }

 private:
  /// About as long as a holder needs that has its core.
  static constexpr std::uint32_t kLooksMost = 100;

  /// Returns when the lock looks free, or when others have had the core.
  void wait_slow() const noexcept;

  std::atomic<bool> is_held_{false};
};

[[gnu::noinline, gnu::cold]] inline void SpinLock::wait_slow() const noexcept {
  for (std::uint32_t look = 0; look < kLooksMost; ++look)
    // relaxed: a hint; a waiter must not take the line from the holder.
    if (!is_held_.load(std::memory_order_relaxed)) return;
  ::sched_yield();  // the holder may wait for this core
}

/// Holds a lock while it lives. Thread safety: single-owner.
class LARKLANE_SCOPED_CAPABILITY SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) noexcept LARKLANE_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  ~SpinGuard() LARKLANE_RELEASE() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace larklane
