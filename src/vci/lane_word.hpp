#pragma once
// A lock and the queue of works that wait for its holder, in one word: so that who can't have the
// lock has queued by the same read-modify-write that found it taken, and the lock is given back by
// one that finds the queue empty. (docs/adr/0014, docs/memory_model.md)

#include <atomic>
#include <cstdint>

#include "vci/work.hpp"

namespace larklane::vci {

// Thread safety: thread-safe.
// Invariants:
// 1. The word is free (0), or held: 1 + the address of the work that queued last (0: none), from
//    which Work::next leads to the others, the youngest first.
// 2. A work that is queued is returned by exactly one try_unlock().
class LaneWord {
 public:
  LaneWord() noexcept = default;
  LaneWord(const LaneWord&) = delete;
  LaneWord& operator=(const LaneWord&) = delete;

  bool try_lock() noexcept {
    // relaxed: a hint; who waits by polling shall not take the line from the holder.
    if (word_.load(std::memory_order_relaxed) != kFree) return false;
    std::uintptr_t word = kFree;
    // acquire: pairs with try_unlock()'s release.
    return word_.compare_exchange_strong(word, kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }

  /// True: the caller holds the lock. False: the holder will find `work`, which may be complete and
  /// gone already.
  bool lock_or_queue(Work& work) noexcept {
    std::uintptr_t word = kFree;
    // acquire: as in try_lock().
    if (word_.compare_exchange_strong(word, kHeld, std::memory_order_acquire,
                                      std::memory_order_relaxed)) [[likely]]
      return true;
    return lock_or_queue_slow(work, word);
  }

  /// Null: the lock has been given back. Otherwise it is still held, and the caller has what had
  /// queued, the oldest first.
  Work* try_unlock() noexcept {
    std::uintptr_t word = kHeld;
    // release: of all that the holder has done; pairs with the acquires of the next one.
    if (word_.compare_exchange_strong(word, kFree, std::memory_order_release,
                                      std::memory_order_relaxed))
      return nullptr;
    return queued_slow();
  }

  /// acquire: as in try_lock(): who sees it free has what its holders have done.
  bool is_free() const noexcept { return word_.load(std::memory_order_acquire) == kFree; }
  /// Works that each lead to one that is older, the other way round.
  static Work* oldest_first(Work* youngest) noexcept {
    Work* oldest = nullptr;
    while (youngest != nullptr) {
      Work* const older = youngest->next;
      youngest->next = oldest;
      oldest = youngest;
      youngest = older;
    }
    return oldest;
  }

 private:
  Work* queued_slow() noexcept;
  bool lock_or_queue_slow(Work& work, std::uintptr_t word) noexcept;

  static constexpr std::uintptr_t kFree = 0, kHeld = 1;
  static_assert(alignof(Work) > kHeld);
  static Work* work_of(std::uintptr_t word) noexcept {
    return reinterpret_cast<Work*>(word & ~kHeld);
  }

  std::atomic<std::uintptr_t> word_{kFree};
};

[[gnu::noinline]] inline Work* LaneWord::queued_slow() noexcept {
  // acquire: pairs with the release in lock_or_queue() of each of them (a release sequence).
  return oldest_first(work_of(word_.exchange(kHeld, std::memory_order_acquire)));
}

[[gnu::noinline]] inline bool LaneWord::lock_or_queue_slow(Work& work,
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
