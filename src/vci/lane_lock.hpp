#pragma once
// A lane's lock and the queue of works that wait for its holder, in one word: so that who can't
// have the lock has queued by the same read-modify-write that found it taken, and the lock is given
// back by one that finds the queue empty. (docs/adr/0014, docs/memory_model.md)

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "base/thread_safety.hpp"
#include "vci/work.hpp"

namespace larklane::vci {

// Thread safety: thread-safe.
// Invariants:
// 1. The word is free (0), or held: 1 + the address of the work that queued last (0: none), from
//    which Work::next leads to the others, the youngest first.
// 2. A work that is queued is returned by exactly one try_unlock().
class LARKLANE_CAPABILITY("lane") LaneLock {
 public:
  LaneLock() noexcept = default;
  LaneLock(const LaneLock&) = delete;
  LaneLock& operator=(const LaneLock&) = delete;

  bool try_lock() noexcept LARKLANE_TRY_ACQUIRE(true) {
    // relaxed: a hint; who waits by polling shall not take the line from the holder.
    if (word_.load(std::memory_order_relaxed) != kFree) return false;
    std::uintptr_t word = kFree;
    // acquire: pairs with try_unlock()'s release.
    return word_.compare_exchange_strong(word, kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }

  /// For what happens seldom: whoever holds the lock gives it back soon.
  void lock() noexcept LARKLANE_ACQUIRE() {
    while (!try_lock()) ::sched_yield();
  }

  /// True: the caller holds the lock. False: the holder will find `work`, which may be complete and
  /// gone already.
  bool lock_or_queue(Work& work) noexcept LARKLANE_TRY_ACQUIRE(true) {
    std::uintptr_t word = kFree;
    // acquire: as in try_lock().
    if (word_.compare_exchange_strong(word, kHeld, std::memory_order_acquire,
                                      std::memory_order_relaxed)) [[likely]]
      return true;
    return lock_or_queue_slow(work, word);
  }

  /// Null: the lock has been given back. Otherwise it is still held, and the caller has what had
  /// queued, the oldest first.
  Work* try_unlock() noexcept LARKLANE_NOT_FOLLOWED {
    std::uintptr_t word = kHeld;
    // release: of all that the holder has done; pairs with the acquires of the next one.
    if (word_.compare_exchange_strong(word, kFree, std::memory_order_release,
                                      std::memory_order_relaxed))
      return nullptr;
    return queued_slow();
  }

  /// For the compiler, where the lock is held by a way that it can't follow.
  void assert_held() const noexcept LARKLANE_ASSERT_HELD(this) {}

 private:
  Work* queued_slow() noexcept;
  bool lock_or_queue_slow(Work& work, std::uintptr_t word) noexcept LARKLANE_NOT_FOLLOWED;

  static constexpr std::uintptr_t kFree = 0, kHeld = 1;
  static_assert(alignof(Work) > kHeld);
  static Work* work_of(std::uintptr_t word) noexcept {
    return reinterpret_cast<Work*>(word & ~kHeld);
  }

  std::atomic<std::uintptr_t> word_{kFree};
};

[[gnu::noinline]] inline Work* LaneLock::queued_slow() noexcept {
  // acquire: pairs with the release in lock_or_queue() of each of them (a release sequence).
  Work* youngest = work_of(word_.exchange(kHeld, std::memory_order_acquire));
  Work* oldest = nullptr;
  while (youngest != nullptr) {
    Work* const older = youngest->next;
    youngest->next = oldest;
    oldest = youngest;
    youngest = older;
  }
  return oldest;
}

[[gnu::noinline]] inline bool LaneLock::lock_or_queue_slow(Work& work,
                                                           std::uintptr_t word) noexcept {
  while (true) {
    std::uintptr_t wanted = kHeld;
    if (word != kFree) {
      work.next = work_of(word);
      wanted |= reinterpret_cast<std::uintptr_t>(&work);
    }
    // acquire: as in try_lock(). release: of the work; pairs with try_unlock()'s acquire.
    if (word_.compare_exchange_weak(word, wanted, std::memory_order_acq_rel,
                                    std::memory_order_relaxed))
      return wanted == kHeld;
  }
}

}  // namespace larklane::vci
