#pragma once
// The receiving side of a communicator with lanes by tag: the order in which messages meet
// receives. (docs/design/protocols/ordinary_messages.md, rules 3 to 5, 7 and 8)

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

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

/// @tparam Lanes  the lanes, with a lock each, and their rings:
///   `std::uint32_t count()`; `std::uint32_t sources()`: constant once a call has named a tag;
///   `void with(lane, work)`: calls work() with that lane's lock held; waits for it;
///   `void with_all(work)`: the same with all locks;
///   `bool look(lane)`: that lane's lock held. Hands each record that a ring of any source shows
///   now to is_wide() and put(), or to the tables. A ring's head moves after that. False: it has
///   not taken all of them;
///   `bool look_alone(lane)`: the same; takes the lock itself;
///   `bool shows_nothing(lane)`: the lane's rings show no record now, and then its tables, of exact
///   mode, have no message. False: unknown
/// @tparam Matcher  tables of receives and messages:
///   `void wide(LaneEntry&)`: an arrival in wide mode, the wide lock held. It goes to the oldest
///   fitting receive, else behind the unexpected messages;
///   `void move_receives_wide(lane)`: that lane's lock held;
///   `LaneEntry* take_exact(lane)`: the first unexpected message, or null; that lane's lock held;
///   `bool prepare_exact()`: the wide lock held: may move_exact() be called? No receive with a
///   wildcard tag is posted, and there is memory;
///   `void move_exact()`: all entries to their lanes, in order; all locks held;
///   `void poked()`: after poke(), the wide lock held
///
/// Thread safety: thread-safe. Lock order: wide, lane, inbox. No call of the MPI, and no callback
/// of the program, under these locks.
// Invariants:
// 1. `mode_` becomes odd, which is wide, with the wide lock held, and even with all locks held. A
//    lane's holder that reads an even value finds the lane's entries in its own tables.
// 2. A record is in its ring, in a table, in the inbox or in `waiting_`. It leaves its ring with
//    the lane's lock held, until it is in a table or in the inbox. The ring's head moves last.
// 3. Of one source and lane, the inbox, `waiting_` and the tables keep the order of the ring.
// 4. An entry is delivered on two conditions: it has the least stamp of the first entries of its
//    source's lanes; a whole look began after it was taken. A message that happened before it was
//    visible to that look. Such a message stands behind no entry with a larger stamp: the stamp of
//    an entry before it in its ring was read before its own push ended.
// 5. A delivered entry keeps its place when the communicator becomes exact and wide again: its
//    place is less than all stamps.
// 6. A thread that releases the wide lock leaves no undelivered entry, or another thread's turn
//    follows; or a look was cut short, and turn() has said so.
template <class Lanes, class Matcher>
class LaneOrder {
 public:
  LaneOrder(Lanes& lanes, Matcher& matcher) noexcept : lanes_(lanes), matcher_(matcher) {}
  LaneOrder(const LaneOrder&) = delete;
  LaneOrder& operator=(const LaneOrder&) = delete;
  ~LaneOrder() = default;  ///< take_undelivered() has returned null

  /// With a lane's lock held: the mode of that lane's arrivals. Else a hint. acquire: of the change
  /// back; a lane without a lock yet has none of its own.
  bool is_wide() const noexcept { return is_odd(mode_.load(std::memory_order_acquire)); }

  /// Is there no message, for a probe with a wildcard tag? False: unknown.
  bool shows_nothing() noexcept {
    // acquire: pairs with try_exact()'s release; the lanes' later counts.
    const std::uint64_t mode = mode_.load(std::memory_order_acquire);
    if (is_odd(mode)) return false;
    for (std::uint32_t lane = 0; lane < lanes_.count(); ++lane)
      if (!lanes_.shows_nothing(lane)) return false;
    // relaxed: an entry that has left a table since was counted there with acquire.
    return mode_.load(std::memory_order_relaxed) == mode;
  }

  /// An arrival in wide mode, with its lane's lock held. turn() follows when it is released.
  /// @return false: exact mode by now
  [[nodiscard]] bool put(LaneEntry& entry) noexcept {
    const SpinGuard guard(inbox_lock_);
    if (!is_wide_relaxed()) return false;  // with the inbox's lock
    inbox_.push(entry);
    // seq_cst: pairs with turn().
    inbox_count_.fetch_add(1, std::memory_order_seq_cst);
    return true;
  }

  /// After put() or poke(), without a lock. Waits for no wide lock. @return false: a look was cut
  /// short, so the caller comes again
  bool turn() noexcept {
    // seq_cst: an entry in the inbox, then a try; against a release of the wide lock, then this
    // load. The same of poke().
    while (inbox_count_.load(std::memory_order_seq_cst) != 0 ||
           is_poked_.load(std::memory_order_seq_cst) || is_cut_short()) {
      if (!try_wide()) return true;  // its holder comes here
      if (is_poked_.exchange(false, std::memory_order_seq_cst)) matcher_.poked();
      const bool is_whole = !is_wide_relaxed() || step();
      unlock_wide();
      if (!is_whole) return false;
    }
    return true;
  }
  /// Makes a thread's next turn() call Matcher::poked().
  void poke() noexcept { is_poked_.store(true, std::memory_order_seq_cst); }

  /// A call that names a tag. `exact()` runs with the lane's lock held; in wide mode `wide()` runs
  /// instead, with the wide lock held. Neither is skipped for a busy lock: a probe that says no
  /// after another one has said yes would break MPI's order.
  /// @param looks  a probe: first all that the rings show arrives. A look that is cut short is made
  /// again, for a while
  /// @return as turn() @pre Lanes::with(lane) finds that lane
  template <class Exact, class Wide>
  bool with_tag(std::uint32_t lane, bool looks, Exact&& exact, Wide&& wide) noexcept {
    for (std::uint32_t looks_left = looks ? kLooksMost : 0;;) {
      bool is_done = false, is_again = false;
      lanes_.with(lane, [&] {
        if (is_wide()) return;
        is_again = looks_left != 0 && !lanes_.look(lane) && --looks_left != 0;
        if (is_again) return;
        exact();
        is_done = true;
      });
      if (is_done) return true;
      if (is_again) {
        ::sched_yield();
        continue;
      }
      lock_wide();
      if (is_wide_relaxed()) {
        if (looks) step_often();
        wide();
        is_done = true;
      }
      const bool is_whole = release_wide();
      if (is_done) return is_whole;
    }
  }
  /// A call with a wildcard tag: changes to wide mode. @return as turn()
  /// @pre prepare()
  template <class Wide>
  bool with_any_tag(bool looks, Wide&& wide) noexcept {
    lock_wide();
    if (!is_wide_relaxed()) {
      go_wide();
      looks = true;
    }
    if (looks) step_often();
    wide();
    return release_wide();
  }
  /// In wide mode: all that the rings show arrives, as by a probe. @return as turn()
  bool look_if_wide() noexcept {
    lock_wide();
    if (is_wide_relaxed()) step_often();
    return release_wide();
  }
  /// Runs `work()` with the wide lock held, in any mode. @return as turn()
  template <class Work>
  bool with_wide_lock(Work&& work) noexcept {
    lock_wide();
    work();
    return release_wide();
  }
  /// Makes room for wide mode. False: memory ran out.
  bool prepare() noexcept {
    if (is_prepared_.load(std::memory_order_acquire)) return true;  // pairs with the release below
    bool is_prepared = false;
    (void)with_wide_lock([&] {
      if (sources_ == nullptr) sources_.reset(new (std::nothrow) Source[lanes_.sources()]);
      if (waiting_ == nullptr)
        waiting_.reset(new (std::nothrow)
                           LaneEntryQueue[std::size_t{lanes_.sources()} * lanes_.count()]);
      is_prepared = sources_ != nullptr && waiting_ != nullptr;
    });
    if (is_prepared) is_prepared_.store(true, std::memory_order_release);
    return is_prepared;
  }
  /// Back to exact mode if no receive and no entry needs wide mode. The caller adds the hysteresis.
  bool try_exact() noexcept {
    bool is_exact = false;
    (void)with_wide_lock([&] {
      is_exact = !is_wide_relaxed();
      if (is_exact || !step() || !matcher_.prepare_exact()) return;
      lanes_.with_all([&] {
        const SpinGuard guard(inbox_lock_);
        if (inbox_count_.load(std::memory_order_relaxed) != 0 || waiting_count_ != 0) return;
        matcher_.move_exact();
        change_mode();
        is_exact = true;
      });
    });
    return is_exact;
  }
  /// At the end, by the last user: an entry that was never delivered; null: there is none.
  LaneEntry* take_undelivered() noexcept {
    if (LaneEntry* const entry = take_inbox()) return entry;
    for (std::size_t at = 0;
         waiting_ != nullptr && at < std::size_t{lanes_.sources()} * lanes_.count(); ++at)
      if (LaneEntry* const entry = waiting_[at].pop()) return entry;
    return nullptr;
  }

 private:
  static constexpr std::uint32_t kLooksMost = 10'000;
  struct Source {
    std::uint32_t waiting = 0;
    Source* next = nullptr;
    bool is_listed = false;
  };
  static constexpr bool is_odd(std::uint64_t mode) noexcept { return mode % 2 != 0; }
  /// With the wide lock held, or as its user says.
  bool is_wide_relaxed() const noexcept { return is_odd(mode_.load(std::memory_order_relaxed)); }
  /// With the wide lock held. release: pairs with is_wide() and shows_nothing().
  void change_mode() noexcept {
    mode_.store(mode_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  /// The wide lock. seq_cst exchanges: a release, then a look at the inbox, against an entry in the
  /// inbox, then a try.
  bool try_wide() noexcept { return !wide_lock_.exchange(true, std::memory_order_seq_cst); }
  void lock_wide() noexcept {
    while (!try_wide()) ::sched_yield();  // the holder may wait for this core
  }
  void unlock_wide() noexcept { wide_lock_.exchange(false, std::memory_order_seq_cst); }
  bool release_wide() noexcept {
    unlock_wide();
    return turn();
  }
  bool is_cut_short() const noexcept {
    return is_cut_short_.load(std::memory_order_relaxed);  // a hint; its writer comes again
  }

  std::size_t index(std::uint32_t source, std::uint32_t lane) const noexcept {
    return std::size_t{source} * lanes_.count() + lane;
  }
  LaneEntry* take_inbox() noexcept {
    const SpinGuard guard(inbox_lock_);
    LaneEntry* const entry = inbox_.pop();
    if (entry != nullptr) inbox_count_.fetch_sub(1, std::memory_order_seq_cst);
    return entry;
  }
  /// With the wide lock. Each ring once, then the inbox. False: not whole.
  bool look() noexcept {
    const std::uint64_t number = ++looks_;
    bool is_whole = true;
    for (std::uint32_t lane = 0; lane < lanes_.count(); ++lane) is_whole &= lanes_.look_alone(lane);
    const SpinGuard guard(inbox_lock_);
    while (LaneEntry* const entry = inbox_.pop()) {
      entry->seen = number;
      put_waiting(*entry);
    }
    inbox_count_.store(0, std::memory_order_seq_cst);
    return is_whole;
  }
  void put_waiting(LaneEntry& entry) noexcept {
    waiting_[index(entry.source, entry.lane_index)].push(entry);
    Source& source = sources_[entry.source];
    ++source.waiting;
    ++waiting_count_;
    if (source.is_listed) return;
    source.is_listed = true;
    source.next = first_source_;
    first_source_ = &source;
  }
  /// The entry of `source` with the least stamp; null: none waits.
  LaneEntryQueue* least_of(std::uint32_t source) noexcept {
    LaneEntryQueue* least = nullptr;
    for (std::uint32_t lane = 0; lane < lanes_.count(); ++lane) {
      LaneEntryQueue& queue = waiting_[index(source, lane)];
      if (!queue.is_empty() && (least == nullptr || queue.first()->stamp < least->first()->stamp))
        least = &queue;
    }
    return least;
  }
  /// Delivers the entries that were seen before the last look began. True: all of the source's
  /// entries.
  bool deliver(Source& source) noexcept {
    const auto number = static_cast<std::uint32_t>(&source - sources_.get());
    while (source.waiting != 0) {
      LaneEntryQueue& queue = *least_of(number);
      if (queue.first()->seen >= looks_) return false;
      --source.waiting;
      --waiting_count_;
      LaneEntry& entry = *queue.pop();
      entry.stamp = ++places_;
      matcher_.wide(entry);
    }
    return true;
  }
  /// With the wide lock, in wide mode: looks until all that a look has found is delivered. False: a
  /// look was cut short.
  bool step() noexcept {
    do {
      if (!look()) {
        is_cut_short_.store(true, std::memory_order_relaxed);  // as is_cut_short() reads it
        return false;
      }
      for (Source** at = &first_source_; *at != nullptr;) {
        Source& source = **at;
        if (deliver(source)) {
          source.is_listed = false;
          *at = source.next;
        } else {
          at = &source.next;
        }
      }
    } while (waiting_count_ != 0);
    is_cut_short_.store(false, std::memory_order_relaxed);
    return true;
  }
  /// For a call that waits for a whole look: meanwhile a link opens, or memory is freed.
  void step_often() noexcept {
    for (std::uint32_t looks_left = kLooksMost; !step() && --looks_left != 0;) ::sched_yield();
  }
  /// With the wide lock: the mode, then one lane after the other.
  void go_wide() noexcept {
    change_mode();
    for (std::uint32_t lane = 0; lane < lanes_.count(); ++lane)
      lanes_.with(lane, [&] {
        matcher_.move_receives_wide(lane);
        while (LaneEntry* const entry = matcher_.take_exact(lane)) {
          entry->seen = 0;
          put_waiting(*entry);
        }
      });
  }

  Lanes& lanes_;
  Matcher& matcher_;
  alignas(64) std::atomic<std::uint64_t> mode_{0};  // changes so far
  std::atomic<bool> is_prepared_{false}, is_cut_short_{false};

  alignas(64) SpinLock inbox_lock_;
  LaneEntryQueue inbox_ LARKLANE_GUARDED_BY(inbox_lock_);
  std::atomic<std::uint64_t> inbox_count_{0};
  std::atomic<bool> is_poked_{false};

  alignas(64) std::atomic<bool> wide_lock_{false};
  // Guarded by the wide lock.
  std::uint64_t looks_ = 0;
  std::uint64_t waiting_count_ = 0;
  std::uint64_t places_ = 0;
  Source* first_source_ = nullptr;  // with waiting entries
  std::unique_ptr<Source[]> sources_;
  std::unique_ptr<LaneEntryQueue[]> waiting_;
};

}  // namespace larklane::msg
