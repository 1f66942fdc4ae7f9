#pragma once
// What the helper sleeps on besides its sockets.

#include <memory>
#include <mutex>
#include <vector>

#include "control/helper/source.hpp"
#include "control/helper/watched.hpp"

namespace larklane::control {

// Thread safety: single-owner (the helper), but for add(), which is thread-safe.
// Invariants:
// 1. kArmed is set exactly while the descriptor is in the epoll set or is being put there, or it
// rests, and only the helper changes it.
// 2. The helper goes to sleep only after before_sleep() of every armed one has said true, and where
// one rests, for a moment only.
// 3. turn_on() rings whenever it is the first use and has found kArmed unset.
//
// No wake-up is lost. All uses and kArmed lie in one word, whose changes have one order. Take a
// turn_on() and the helper's last look at the word before it sleeps (a load, or the exchange that
// unsets kArmed). If the look comes later in that order, or sees it, the helper finds a use: it
// arms the descriptor, or leaves it armed, and by 2 it is asleep on a descriptor that says what
// comes from now on, and what had come before has been served. If the look comes first and left
// kArmed unset, turn_on() finds it unset and rings, and a ring is kept by the eventfd until the
// helper, awake again, looks anew. If the look comes first and left kArmed set, the helper sleeps
// on the descriptor by 2, so nobody has to ring: when something comes, it wakes, and tries to
// exchange "armed, no use" for 0. That fails if the turn_on() has come by then, and it serves; if
// it succeeds, a later turn_on() finds kArmed unset. One that rests is looked at anew after a
// moment, which is as good as something that comes.
class Watches {
 public:
  Watches(int epoll) noexcept : epoll_(epoll) {}
  void use_epoll(int epoll) noexcept { epoll_ = epoll; }

  /// Seen by the next before_sleep(), for which the caller rings `bell`.
  void add(Watched& watched, const Bell& bell);
  void remove(Watched& watched);
  /// Arms what is on. False: something has been served, or can't be slept on: look again soon.
  bool before_sleep();
  /// Its descriptor is readable, or broken.
  void on_event(void* entry);
  /// The first time at which on_time() has something to do; Watched::kNever.
  std::uint64_t next_time_ns() const noexcept;
  void on_time(std::uint64_t now_ns);
  /// What has been removed is not needed any more: a batch of events is over.
  void end_of_batch() { removed_.clear(); }
  /// One of those that are on can't be slept on.
  bool must_poll() const noexcept { return must_poll_; }
  /// Not 0: one of those that are on is served by others, and is to be looked at after so long.
  std::uint64_t rest_ns() const noexcept { return rest_ns_; }

 private:
  struct Entry {
    Watched* watched;  // null: removed
    bool is_armed = false;
    bool is_resting = false;
    std::uint64_t rest_ns = 0;  // while it rests; kRestNsMin is added
    bool is_counting = false;   // and that is being spent: others' turns count
    Source source{SourceKind::watched, this};
  };

  /// It is on, and others serve it: its descriptor is not slept on meanwhile.
  bool rests(Entry& entry);
  /// False: it is off, or can't be slept on.
  bool arm(Entry& entry);
  void disarm(Entry& entry);
  /// If it is on; else the helper sleeps without it from now on.
  void serve(Entry& entry) {
    if (is_on(entry)) entry.watched->serve();
  }
  /// False: it was off, and is not slept on any more.
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
