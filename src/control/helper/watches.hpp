#pragma once
// The descriptors that the helper sleeps on besides its sockets.

#include <memory>
#include <mutex>
#include <vector>

#include "control/helper/source.hpp"
#include "control/helper/watched.hpp"

namespace larklane::control {

// Thread safety: single-owner (the helper), but for add(), which is thread-safe.
// Invariants:
// 1. Only the helper changes kArmed. It is set exactly while the descriptor is in the epoll set or
// is being put there, or the entry rests.
// 2. The helper goes to sleep only after before_sleep() of every armed entry has returned true.
// Where an entry rests, it sleeps for a moment only.
// 3. turn_on() rings whenever it is the first use and has found kArmed unset.
//
// No wake-up is lost. All uses and kArmed lie in one word, whose changes have one order. Take a
// turn_on() and the helper's last access to the word before it sleeps: a load, or the exchange that
// unsets kArmed.
// a. The access comes later in that order, or sees the turn_on(). The helper finds a use, and arms
// the descriptor or leaves it armed. By 2 it sleeps on a descriptor that reports later events, and
// it has served earlier events.
// b. The access comes first and leaves kArmed unset. turn_on() finds kArmed unset and rings. The
// eventfd keeps the ring until the helper, awake again, reads the word anew.
// c. The access comes first and leaves kArmed set. By 2 the helper sleeps on the descriptor, so no
// thread has to ring. An event wakes the helper, which tries to exchange "armed, no use" for 0. If
// the turn_on() has come by then, the exchange fails and the helper serves. If the exchange
// succeeds, a later turn_on() finds kArmed unset.
// The helper reads the word of a resting entry anew after a moment, which is as good as an event.
class Watches {
 public:
  explicit Watches(int epoll) noexcept : epoll_(epoll) {}
  void use_epoll(int epoll) noexcept { epoll_ = epoll; }

  /// The next before_sleep() sees it; the caller rings `bell` for that.
  void add(Watched& watched, const Bell& bell);
  void remove(Watched& watched);
  /// Arms the entries that are on. False: it has served an entry, so the helper does not sleep yet.
  bool before_sleep();
  /// The entry's descriptor is readable, or broken.
  void on_event(void* entry);
  /// When on_time() is due; Watched::kNever: not at all.
  std::uint64_t next_time_ns() const noexcept;
  void on_time(std::uint64_t now_ns);
  /// A batch of events is over: frees the removed entries.
  void end_of_batch() { removed_.clear(); }
  /// The helper can't sleep on one of the entries that are on.
  bool must_poll() const noexcept { return must_poll_; }
  /// Not 0: threads of the application serve an entry that is on. The helper checks it after so
  /// long.
  std::uint64_t rest_ns() const noexcept { return rest_ns_; }

 private:
  struct Entry {
    Watched* watched;  // null: removed
    bool is_armed = false;
    bool is_resting = false;
    std::uint64_t rest_ns = 0;  // of the current rest; kRestNsMin is added
    bool is_counting = false;   // in the added time: others' turns count
    Source source{SourceKind::watched, this};
  };

  /// True: it is on, and threads of the application serve it. The helper does not sleep on it
  /// meanwhile.
  bool rests(Entry& entry);
  /// False: it is off, or the helper can't sleep on it.
  bool arm(Entry& entry);
  void disarm(Entry& entry);
  /// Serves an entry that is on; else the helper sleeps without it from now on.
  void serve(Entry& entry) {
    if (is_on(entry)) entry.watched->serve();
  }
  /// False: it was off, and the helper no longer sleeps on it.
  bool is_on(Entry& entry);

  void take_added();

  int epoll_;
  std::mutex mutex_;
  std::vector<Watched*> added_;  // guarded by mutex_
  bool must_poll_ = false;
  std::uint64_t rest_ns_ = 0;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Entry>> removed_;
};

}  // namespace larklane::control
