#pragma once
// The sending side of a pair that spreads a communicator's messages over lanes by tag.
// (docs/design/protocols/ordinary_messages.md, rule 7)

#include <atomic>

#include "base/spin_lock.hpp"
#include "base/thread_safety.hpp"

namespace larklane::msg {

/// The messages to one peer that wait in their sender's heap, of all lanes.
/// @tparam Link  base of the messages, with `Link* next`, which is the backlog's while one waits
///
/// Callers pass `push(Link&)`. False: that lane's ring has no room. True: the record and all before
/// it in that ring can be read, and the message is not the backlog's any more.
/// Thread safety: thread-safe. Lock order: backlog, then those of push().
// Invariants:
// 1. A push returns only when its record can be read: a message that happened before a visible one
//    is visible, or in the backlog.
// 2. While `has_backlog_` is set each message of the pair joins the backlog, on every lane. The
//    flag is cleared after the last push, with the backlog's lock held.
// 3. The flag is set, then the rings are tried again. A receiver moves a head, then reads the flag.
template <class Link>
class LaneBacklog {
 public:
  LaneBacklog() noexcept = default;
  LaneBacklog(const LaneBacklog&) = delete;
  LaneBacklog& operator=(const LaneBacklog&) = delete;

  /// Must the next message join it? acquire: pairs with drain_locked()'s release.
  bool has_some() const noexcept { return has_backlog_.load(std::memory_order_acquire); }

  /// Pushes it, or puts it behind those that wait. @return has_some()
  template <class Push>
  bool send(Link& message, Push&& push) noexcept {
    const SpinGuard guard(lock_);
    // relaxed: only holders of the lock change it.
    if (!has_backlog_.load(std::memory_order_relaxed) && push(message)) return false;
    message.next = nullptr;
    *end_ = &message;
    end_ = &message.next;
    // seq_cst: store, then look at the rings; pairs with the receiver, which moves a head and looks
    // at the flag.
    has_backlog_.exchange(true, std::memory_order_seq_cst);
    return !drain_locked(push);
  }

  /// `by` takes the place of a message. False: that message does not wait here.
  bool replace(Link& message, Link& by) noexcept {
    const SpinGuard guard(lock_);
    for (Link** at = &first_; *at != nullptr; at = &(*at)->next) {
      if (*at != &message) continue;
      by.next = message.next;
      *at = &by;
      if (end_ == &message.next) end_ = &by.next;
      return true;
    }
    return false;
  }

  /// After room was made: by the sender's waits, its hook or its helper.
  /// @return true: the backlog is empty
  template <class Push>
  bool drain(Push&& push) noexcept {
    if (!has_some()) return true;
    const SpinGuard guard(lock_);
    return drain_locked(push);
  }

 private:
  template <class Push>
  bool drain_locked(Push&& push) noexcept LARKLANE_REQUIRES(lock_) {
    while (first_ != nullptr) {
      Link* const next = first_->next;  // a pushed message may be gone
      if (!push(*first_)) {
        first_->next = next;
        return false;
      }
      first_ = next;
      if (first_ == nullptr) end_ = &first_;
    }
    // release: pairs with has_some(); all messages are in their rings.
    has_backlog_.store(false, std::memory_order_release);
    return true;
  }

  alignas(64) std::atomic<bool> has_backlog_{false};
  alignas(64) SpinLock lock_;
  Link* first_ LARKLANE_GUARDED_BY(lock_) = nullptr;
  Link** end_ LARKLANE_GUARDED_BY(lock_) = &first_;
};

}  // namespace larklane::msg
