#pragma once
// The receiving side of a communicator with lanes by tag: the order in which messages meet
// receives. (docs/design/protocols/ordinary_messages.md, rules 3 to 5, 7 and 8)

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/spin_lock.hpp"
#include "base/thread_safety.hpp"

namespace larklane::msg {

/// An arrived message. Belongs to LaneOrder until it is delivered. Thread safety: single-owner.
struct LaneEntry {
  LaneEntry* next_entry = nullptr;
  std::uint64_t stamp = 0;  ///< its sender's; from its delivery on, its place among the delivered
  std::uint64_t seen = 0;   ///< number of the look that took it
  std::uint32_t source = 0;
  std::uint32_t lane_index = 0;
};

/// First in, first out. Thread safety: single-owner.
class LaneEntryQueue {
 public:
  LaneEntryQueue() noexcept = default;
  LaneEntryQueue(const LaneEntryQueue&) = delete;
  LaneEntryQueue& operator=(const LaneEntryQueue&) = delete;

  bool is_empty() const noexcept { return first_ == nullptr; }
  LaneEntry* first() const noexcept { return first_; }
  void push(LaneEntry& entry) noexcept {
    entry.next_entry = nullptr;
    *end_ = &entry;
    end_ = &entry.next_entry;
  }
  LaneEntry* pop() noexcept {
    LaneEntry* const entry = first_;
    if (entry == nullptr) return nullptr;
    first_ = entry->next_entry;
    if (first_ == nullptr) end_ = &first_;
    return entry;
  }

 private:
  LaneEntry* first_ = nullptr;
  LaneEntry** end_ = &first_;
};

/// @tparam Rings  the lanes' rings of all sources:
///   `std::uint32_t sources()`;
///   `std::uint64_t tail(source, lane)`, read afresh (acquire); `std::uint64_t head(source, lane)`;
///   `LaneEntry& front(source, lane)`, the record at the head, with stamp and source;
///   `void pop(source, lane)`, moves the head (release), then looks at the source's backlog flag
/// @tparam Matcher  tables of receives and messages:
///   `void exact(lane, LaneEntry&)`: an arrival in exact mode, that lane's lock held;
///   `void wide(LaneEntry&)`: an arrival in wide mode, the wide lock held. It goes to the oldest
///   fitting receive, else behind the unexpected messages;
///   `void move_receives_wide(lane)`: that lane's lock held;
///   `LaneEntry* take_exact(lane)`: the first unexpected message, or null; that lane's lock held;
///   `bool needs_wide()`: a receive with a wildcard tag is posted;
///   `void move_exact()`: all entries to their lanes, in order; all locks held
///
/// Thread safety: thread-safe. Lock order: wide, lane, inbox. No call of the MPI, and no callback
/// of the program, under these locks.
// Invariants:
// 1. `is_wide_` changes to true with the wide lock held, and to false with all locks held. A lane's
//    holder that reads false finds the lane's entries in its own tables.
// 2. A record is in its ring, in a table, in the inbox or in `waiting_`. It leaves its ring with
//    the lane's lock held, until it is in a table or in the inbox. The ring's head moves last.
// 3. Of one source and lane, the inbox, `waiting_` and the tables keep the order of the ring.
// 4. An entry is delivered if it has the least stamp of the first entries of its source's lanes,
//    and a whole look began after it was taken. A message that happened before it was visible to
//    that look. Such a message stands behind no entry with a larger stamp: the stamp of an entry
//    before it in its ring was read before its own push ended.
// 5. A delivered entry keeps its place when the communicator becomes exact and wide again: its
//    place is less than all stamps.
// 6. A thread that releases the wide lock leaves no undelivered entry, or another thread's turn
//    follows.
template <class Rings, class Matcher, std::uint32_t kLanes>
class LaneOrder {
 public:
  LaneOrder(Rings& rings, Matcher& matcher)
      : rings_(rings),
        matcher_(matcher),
        waiting_(std::make_unique<LaneEntryQueue[]>(std::size_t{kLanes} * rings.sources())) {}
  LaneOrder(const LaneOrder&) = delete;
  LaneOrder& operator=(const LaneOrder&) = delete;

  /// A hint.
  bool is_wide() const noexcept { return is_wide_.load(std::memory_order_relaxed); }

  /// Progress of one lane. Waits for no lock: also for the progress hook.
  void poll(std::uint32_t lane) noexcept LARKLANE_NOT_FOLLOWED {
    bool wide = false;
    if (lanes_[lane].lock.try_lock()) {
      // relaxed, here and below: the lane's lock, or the wide lock, is held.
      wide = is_wide_.load(std::memory_order_relaxed);
      if (wide)
        take_wide(lane);
      else
        take_exact(lane);
      lanes_[lane].lock.unlock();
    } else {
      wide = is_wide_.load(std::memory_order_relaxed);
    }
    if (wide) turn();
  }

  /// A call that names a tag: posts, probes or cancels. `exact(lane)` runs with the lane's lock
  /// held after all that the rings show has arrived; in wide mode `wide()` runs instead, with the
  /// wide lock held, after a whole look. Neither is skipped for a busy lock: a probe that says no
  /// after another one has said yes would break MPI's order.
  template <class Exact, class Wide>
  void with_tag(std::uint32_t lane, Exact&& exact, Wide&& wide) noexcept LARKLANE_NOT_FOLLOWED {
    for (;;) {
      {
        const SpinGuard guard(lanes_[lane].lock);
        if (!is_wide_.load(std::memory_order_relaxed)) {
          take_exact(lane);
          exact();
          return;
        }
      }
      const WideGuard guard(*this);
      if (!is_wide_.load(std::memory_order_relaxed)) continue;  // exact again
      step();
      wide();
      return;
    }
  }
  /// A call with a wildcard tag: changes to wide mode.
  template <class Wide>
  void with_any_tag(Wide&& wide) noexcept {
    const WideGuard guard(*this);
    if (!is_wide_.load(std::memory_order_relaxed)) go_wide();
    step();
    wide();
  }
  /// Back to exact mode if no receive and no entry needs wide mode. The caller adds the hysteresis.
  bool try_exact() noexcept LARKLANE_NOT_FOLLOWED {
    const WideGuard guard(*this);
    if (!is_wide_.load(std::memory_order_relaxed)) return true;
    step();
    if (matcher_.needs_wide()) return false;
    for (Lane& lane : lanes_) lane.lock.lock();
    // All lanes' locks are held: the inbox can't grow.
    const bool is_empty = inbox_count_.load(std::memory_order_relaxed) == 0 && waiting_count_ == 0;
    if (is_empty) {
      matcher_.move_exact();
      is_wide_.store(false, std::memory_order_relaxed);
    }
    for (Lane& lane : lanes_) lane.lock.unlock();
    return is_empty;
  }

 private:
  struct alignas(64) Lane {
    SpinLock lock;
  };
  /// The wide lock. seq_cst exchanges: a release, then a look at the inbox, against an entry in the
  /// inbox, then a try.
  bool try_wide() noexcept { return !wide_lock_.exchange(true, std::memory_order_seq_cst); }
  void lock_wide() noexcept {
    while (!try_wide()) ::sched_yield();  // the holder may wait for this core
  }
  void unlock_wide() noexcept { wide_lock_.exchange(false, std::memory_order_seq_cst); }
  class WideGuard {
   public:
    explicit WideGuard(LaneOrder& order) noexcept : order_(order) { order.lock_wide(); }
    ~WideGuard() {
      order_.unlock_wide();
      order_.turn_if_left();
    }
    WideGuard(const WideGuard&) = delete;
    WideGuard& operator=(const WideGuard&) = delete;

   private:
    LaneOrder& order_;
  };

  std::size_t index(std::uint32_t source, std::uint32_t lane) const noexcept {
    return std::size_t{source} * kLanes + lane;
  }
  /// Hands the records below each tail, as it stands now, to `put`. The lane's lock is held.
  template <class Put>
  void take(std::uint32_t lane, Put&& put) noexcept {
    const std::uint32_t sources = rings_.sources();
    for (std::uint32_t source = 0; source < sources; ++source) {
      const std::uint64_t tail = rings_.tail(source, lane);
      for (std::uint64_t head = rings_.head(source, lane); head != tail; ++head) {
        LaneEntry& entry = rings_.front(source, lane);
        entry.source = source;
        entry.lane_index = lane;
        put(entry);
        rings_.pop(source, lane);
      }
    }
  }
  void take_exact(std::uint32_t lane) noexcept {
    take(lane, [&](LaneEntry& entry) { matcher_.exact(lane, entry); });
  }
  void take_wide(std::uint32_t lane) noexcept {
    take(lane, [&](LaneEntry& entry) {
      const SpinGuard guard(inbox_lock_);
      inbox_.push(entry);
      // seq_cst: pairs with turn_if_left().
      inbox_count_.fetch_add(1, std::memory_order_seq_cst);
    });
  }

  /// With the wide lock. Each ring once, then the inbox.
  void look() noexcept {
    const std::uint64_t number = ++looks_;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      const SpinGuard guard(lanes_[lane].lock);
      take_wide(lane);
    }
    const SpinGuard guard(inbox_lock_);
    while (LaneEntry* const entry = inbox_.pop()) {
      entry->seen = number;
      put_waiting(*entry);
    }
    inbox_count_.store(0, std::memory_order_seq_cst);
  }
  void put_waiting(LaneEntry& entry) noexcept {
    waiting_[index(entry.source, entry.lane_index)].push(entry);
    ++waiting_count_;
  }
  /// The entry of `source` with the least stamp; null: none waits.
  LaneEntryQueue* least_of(std::uint32_t source) noexcept {
    LaneEntryQueue* least = nullptr;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      LaneEntryQueue& queue = waiting_[index(source, lane)];
      if (!queue.is_empty() && (least == nullptr || queue.first()->stamp < least->first()->stamp))
        least = &queue;
    }
    return least;
  }
  /// With the wide lock, in wide mode: looks until all that a look has found is delivered.
  void step() noexcept {
    do {
      look();
      for (std::uint32_t source = 0; source < rings_.sources(); ++source)
        for (LaneEntryQueue* queue = least_of(source);
             queue != nullptr && queue->first()->seen < looks_; queue = least_of(source)) {
          --waiting_count_;
          LaneEntry& entry = *queue->pop();
          entry.stamp = ++places_;
          matcher_.wide(entry);
        }
    } while (waiting_count_ != 0);
  }
  /// With the wide lock: the flag, then one lane after the other.
  void go_wide() noexcept {
    is_wide_.store(true, std::memory_order_relaxed);
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      const SpinGuard guard(lanes_[lane].lock);
      matcher_.move_receives_wide(lane);
      while (LaneEntry* const entry = matcher_.take_exact(lane)) {
        entry->seen = 0;
        put_waiting(*entry);
      }
    }
  }
  /// From a poll: by a try.
  void turn() noexcept {
    do {
      if (!try_wide()) return;  // its holder looks at the inbox after it has released the lock
      if (is_wide_.load(std::memory_order_relaxed)) step();
      unlock_wide();
    } while (inbox_count_.load(std::memory_order_seq_cst) != 0);
  }
  void turn_if_left() noexcept {
    // seq_cst: the release of the wide lock, then this load; take_wide() adds, then turn() tries.
    if (inbox_count_.load(std::memory_order_seq_cst) != 0) turn();
  }

  Rings& rings_;
  Matcher& matcher_;
  std::array<Lane, kLanes> lanes_;
  alignas(64) std::atomic<bool> is_wide_{false};

  alignas(64) SpinLock inbox_lock_;
  LaneEntryQueue inbox_ LARKLANE_GUARDED_BY(inbox_lock_);
  std::atomic<std::uint64_t> inbox_count_{0};

  alignas(64) std::atomic<bool> wide_lock_{false};
  // Guarded by the wide lock.
  std::uint64_t looks_ = 0;
  std::uint64_t waiting_count_ = 0;
  std::uint64_t places_ = 0;
  const std::unique_ptr<LaneEntryQueue[]> waiting_;
};

}  // namespace larklane::msg
