#pragma once
// Biased locks: as long as one thread alone uses the guarded data, it takes no lock. The first
// thread to come owns all of it, and enters it without a read-modify-write. The second thread ends
// that, for good, and pays for it. (docs/design/adr/0024)

#include <atomic>
#include <cassert>
#include <cstdint>

#include "base/spin_lock.hpp"
#include "base/thread_safety.hpp"
#include "vci/membarrier.hpp"

namespace larklane::vci {

// Thread safety: thread-safe. Not from a callback that runs inside.
// Invariants:
// 1. A thread that has entered is alone with the guarded data; any other thread holds its lock, and
//    end() has returned to it.
// 2. `owner_` goes from none to one thread or to over, from a thread to ending, from there to over.
//    It is over only when the owner is out, and will not enter again.
class Bias {
 public:
  Bias() noexcept = default;
  Bias(const Bias&) = delete;
  Bias& operator=(const Bias&) = delete;

  /// True: alone, until leave(). False: the caller takes its lock, then calls end().
  [[gnu::always_inline]] bool enter() noexcept {
    // relaxed: a thread compares the value with itself only; others synchronise in end().
    const std::uintptr_t owner = owner_.load(std::memory_order_relaxed);
    if (owner != this_thread_number()) return owner == kNobodyYet && claim_slow();
    assert(!is_inside_.load(std::memory_order_relaxed));  // a handler of a signal
    is_inside_.store(true, std::memory_order_relaxed);
    leave_fence_to_others();  // end_slow()'s
    if (owner_.load(std::memory_order_relaxed) == owner) [[likely]]
      return true;
    leave();
    return false;
  }
  /// release: of the owner's writes; pairs with end_slow()'s acquire.
  void leave() noexcept { is_inside_.store(false, std::memory_order_release); }

  /// @pre enter() was false
  void end() noexcept {
    // acquire: of the owner's writes; pairs with end_slow()'s release.
    if (owner_.load(std::memory_order_acquire) != kOver) [[unlikely]]
      end_slow();
  }

 private:
  static constexpr std::uintptr_t kNobodyYet = 0, kEnding = 1, kOver = 2;  // no threads' numbers

  bool claim_slow() noexcept;
  void end_slow() noexcept;

  std::atomic<std::uintptr_t> owner_{kNobodyYet};
  std::atomic<bool> is_inside_{false};
};

/// Owns the data that `lock` guards while it lives. Thread safety: single-owner.
class LARKLANE_SCOPED_CAPABILITY BiasedGuard {
 public:
  BiasedGuard(Bias& bias, SpinLock& lock) noexcept LARKLANE_ACQUIRE(lock) LARKLANE_NOT_FOLLOWED
      : bias_(bias),
        lock_(bias.enter() ? nullptr : &lock) {
    if (lock_ == nullptr) return;
    lock_->lock();
    bias_.end();
  }
  ~BiasedGuard() LARKLANE_RELEASE() LARKLANE_NOT_FOLLOWED {
    if (lock_ == nullptr)
      bias_.leave();
    else
      lock_->unlock();
  }
  BiasedGuard(const BiasedGuard&) = delete;
  BiasedGuard& operator=(const BiasedGuard&) = delete;

 private:
  Bias& bias_;
  SpinLock* const lock_;  // null: it need not be held
};

}  // namespace larklane::vci
