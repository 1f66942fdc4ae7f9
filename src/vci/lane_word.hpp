#pragma once
// A lock and the queue of works that wait for its holder, in one word. One read-modify-write finds
// the lock taken and queues the work; one finds the queue empty and releases the lock.
// (docs/design/adr/0014, docs/design/memory_model.md)

#include <atomic>
#include <cstdint>

#include "base/reversed.hpp"
#include "vci/work.hpp"

namespace larklane::vci {

// Thread safety: thread-safe.
// Invariants:
// 1. The word is free, or held with the address of the work that queued last (0: none), from which
//    Work::next leads to the others, the youngest first. A further bit says whether there is an
//    owner (LaneLock): a thread that sees the word free and without owner needs no other check.
// 2. A work that is queued is returned by exactly one try_unlock() or unlock_slow().
class LaneWord {
 public:
  enum class Taken : std::uint8_t { no, yes, from_owner };

  LaneWord() noexcept = default;
  LaneWord(const LaneWord&) = delete;
  LaneWord& operator=(const LaneWord&) = delete;

  // relaxed: a hint, or the reader holds the word.
  bool has_owner() const noexcept { return (word_.load(std::memory_order_relaxed) & kOwned) != 0; }
  /// acquire: a reader that sees it free sees its holders' writes; pairs with the releases below.
  bool is_free() const noexcept { return (word_.load(std::memory_order_acquire) & kHeld) == 0; }

  /// If it is free, and has no owner.
  bool try_lock() noexcept {
    std::uintptr_t word = kFree;
    // acquire: pairs with the releases of earlier holders.
    return word_.compare_exchange_strong(word, kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  /// If it looks free: a polling waiter must not take the line from the holder.
  Taken poll_lock() noexcept {
    std::uintptr_t word = word_.load(std::memory_order_relaxed);
    if ((word & kHeld) != 0) return Taken::no;
    return take(word, word | kHeld);
  }
  /// Taken, or `work` has queued: it may be complete and gone already.
  Taken lock_or_queue(Work& work) noexcept;

  /// True: it has been given back. False: something has queued, or there is an owner.
  bool try_unlock() noexcept {
    std::uintptr_t word = kHeld;
    // release: of all that the holder has done; pairs with the acquires of the next one.
    return word_.compare_exchange_strong(word, kFree, std::memory_order_release,
                                         std::memory_order_relaxed);
  }
  /// Null: it has been released. Otherwise it is still held, and the caller gets the queued works,
  /// the oldest first.
  Work* unlock_slow() noexcept;

  /// @pre the caller holds it. release: of the owner's identity
  void set_owner() noexcept { word_.fetch_or(kOwned, std::memory_order_release); }
  void clear_owner() noexcept { word_.fetch_and(~kOwned, std::memory_order_release); }

 private:
  static constexpr std::uintptr_t kFree = 0, kHeld = 1, kOwned = 2;
  static_assert(alignof(Work) > (kHeld | kOwned));
  static Work* work_of(std::uintptr_t word) noexcept {
    return reinterpret_cast<Work*>(word & ~(kHeld | kOwned));
  }
  Taken take(std::uintptr_t& word, std::uintptr_t wanted) noexcept {
    // acquire: as in try_lock(). release: of the queued work; pairs with unlock_slow()'s acquire.
    if (!word_.compare_exchange_strong(word, wanted, std::memory_order_acq_rel,
                                       std::memory_order_relaxed))
      return Taken::no;
    return (word & kOwned) != 0 ? Taken::from_owner : Taken::yes;
  }

  std::atomic<std::uintptr_t> word_{kFree};
};

[[gnu::noinline]] inline LaneWord::Taken LaneWord::lock_or_queue(Work& work) noexcept {
  std::uintptr_t word = word_.load(std::memory_order_relaxed);  // the exchange compares it
  while (true) {
    const bool is_held = (word & kHeld) != 0;
    std::uintptr_t wanted = (word & kOwned) | kHeld;
    if (is_held) {
      work.next = work_of(word);
      wanted |= reinterpret_cast<std::uintptr_t>(&work);
    }
    if (const Taken taken = take(word, wanted); taken != Taken::no)
      return is_held ? Taken::no : taken;
  }
}

[[gnu::noinline]] inline Work* LaneWord::unlock_slow() noexcept {
  std::uintptr_t word = word_.load(std::memory_order_relaxed);  // the exchange compares it
  while (true) {
    Work* const youngest = work_of(word);
    const std::uintptr_t owned = word & kOwned;
    // release: as in try_unlock(). acquire: pairs with the release of each that has queued (a
    // release sequence).
    if (word_.compare_exchange_weak(word, youngest != nullptr ? owned | kHeld : owned,
                                    std::memory_order_acq_rel, std::memory_order_relaxed))
      return reversed(youngest);
  }
}

}  // namespace larklane::vci
