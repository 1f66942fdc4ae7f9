#pragma once
// The sending side of a pair that spreads a communicator's messages over lanes by tag.
// (docs/design/protocols/ordinary_messages.md, rules 1, 2 and 6)

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/spin_lock.hpp"
#include "base/splitmix.hpp"
#include "msg/match/lane_stamp.hpp"

namespace larklane::msg {

/// A message that waits in its sender's heap. Belongs to the sender. Thread safety: single-owner.
struct BacklogLink {
  BacklogLink* next = nullptr;
  std::uint32_t lane = 0;
};

/// @tparam Rings  `bool push(std::uint32_t lane, Message&)`: false if that lane's ring is full.
/// True:
///   the record and all before it in that ring can be read, and the message is the rings'.
///   One thread at a time calls it for each lane.
/// @tparam Message  derives from BacklogLink; `stamp`, a std::uint64_t
///
/// Thread safety: thread-safe. Lock order: backlog, then producer.
// Invariants:
// 1. A push returns with its producer lock released only when its record can be read: a message
//    that happened before a visible one is visible, or in the backlog.
// 2. While `has_backlog` is set each message of the pair joins the backlog, on every lane. The
//    flag is cleared after the last push, with the backlog's lock held.
// 3. The flag is set, then the rings are tried again. A receiver moves a head, then reads the flag.
template <class Rings, class Message, class Clock, std::uint32_t kLanes>
class LaneSender {
 public:
  /// @param has_backlog  in shared memory: the receiver reads it after it has made room
  LaneSender(Rings& rings, std::atomic<bool>& has_backlog, bool has_clock) noexcept
      : rings_(rings), has_backlog_(has_backlog), stamps_(has_clock) {}
  LaneSender(const LaneSender&) = delete;
  LaneSender& operator=(const LaneSender&) = delete;

  static std::uint32_t lane_of(std::uint32_t tag) noexcept {
    return static_cast<std::uint32_t>(splitmix(tag) % kLanes);
  }

  /// Cannot fail: without room the message waits in the heap. @param message  in its sender's
  /// memory
  void send(Message& message, std::uint32_t tag) noexcept {
    message.lane = lane_of(tag);
    message.stamp = stamps_.next();
    // acquire: pairs with drain_locked()'s release.
    if (!has_backlog_.load(std::memory_order_acquire) && push(message)) [[likely]]
      return;
    const SpinGuard guard(backlog_);
    // relaxed: only holders of the lock change it.
    if (!has_backlog_.load(std::memory_order_relaxed) && push(message)) return;
    message.next = nullptr;
    *end_ = &message;
    end_ = &message.next;
    // seq_cst: store, then look at the rings; pairs with the receiver, which moves a head and looks
    // at the flag.
    has_backlog_.exchange(true, std::memory_order_seq_cst);
    drain_locked();
  }

  /// After room was made: by the sender's waits, its hook or its helper.
  /// @return true: the backlog is empty
  bool drain() noexcept {
    // acquire: pairs with drain_locked()'s release.
    if (!has_backlog_.load(std::memory_order_acquire)) return true;
    const SpinGuard guard(backlog_);
    return drain_locked();
  }

 private:
  bool push(Message& message) noexcept {
    const SpinGuard guard(producers_[message.lane].lock);
    return rings_.push(message.lane, message);
  }
  bool drain_locked() noexcept LARKLANE_REQUIRES(backlog_) {
    while (first_ != nullptr) {
      BacklogLink* const next = first_->next;  // a pushed message may be gone
      if (!push(*static_cast<Message*>(first_))) return false;
      first_ = next;
      if (first_ == nullptr) end_ = &first_;
    }
    // release: pairs with the acquires of send() and drain(); all messages are in their rings.
    has_backlog_.store(false, std::memory_order_release);
    return true;
  }

  struct alignas(64) Producer {
    SpinLock lock;
  };
  Rings& rings_;
  std::atomic<bool>& has_backlog_;
  LaneStamps<Clock> stamps_;
  std::array<Producer, kLanes> producers_;
  alignas(64) SpinLock backlog_;
  BacklogLink* first_ LARKLANE_GUARDED_BY(backlog_) = nullptr;
  BacklogLink** end_ LARKLANE_GUARDED_BY(backlog_) = &first_;
};

}  // namespace larklane::msg
