#pragma once
// The lifetime of one half of a channel: its users, its failure, the end of its peer, and the first
// Start.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.hpp"
#include "part/peer_state.hpp"
#include "part/request.hpp"

namespace larklane::part {

/// The error of one request: set once, by any thread. Thread safety: thread-safe.
class FailureSlot {
 public:
  void set(Status status, std::string text);
  /// acquire: pairs with set()'s release, so that text() is whole.
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  Status status() const noexcept;
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Status status_;
  std::string text_;
};

/// Movers of one channel in this process. A mover of shared copies reads the block once more after
/// the round is complete: the block must stay open until the mover has left. After shut() no mover
/// may move, and the channel is quiet when the last one has left. Thread safety: thread-safe.
class InUse {
 public:
  /// The caller calls leave(), whether it may move or not. False: shut, so it moves nothing.
  [[nodiscard]] bool enter() noexcept { return enter(kOne).may_move; }

  /// The same with a cargo; cargoes are added up modulo 2^32.
  struct Entry {
    bool may_move;
    std::uint32_t cargo;  ///< of all movers so far
  };
  /// @param one  one_with(cargo)
  [[nodiscard]] Entry enter(std::uint64_t one) noexcept {
    // acquire: pairs with shut()'s release.
    const std::uint64_t before = movers_.fetch_add(one, std::memory_order_acquire);
    return {(movers(before) & kShut) == 0, static_cast<std::uint32_t>((before + one) >> 32)};
  }
  static constexpr std::uint64_t one_with(std::uint32_t cargo) noexcept {
    return std::uint64_t{cargo} << 32 | kOne;
  }
  /// True: it is quiet now.
  bool leave() noexcept {
    // acq_rel: the last mover acquires the copies of all others; pairs with wait_until_free(),
    // is_quiet() and the other movers.
    return movers(movers_.fetch_sub(kOne, std::memory_order_acq_rel)) == kShut + 1;
  }
  /// From now on no mover may move. True: it is quiet.
  bool shut() noexcept {
    // acq_rel: as in leave().
    return (movers(movers_.fetch_or(kShut, std::memory_order_acq_rel)) & ~kShut) == 0;
  }
  /// Is no mover inside?
  bool is_free() const noexcept {
    // acquire: as in is_quiet().
    return (movers(movers_.load(std::memory_order_acquire)) & ~kShut) == 0;
  }
  bool is_quiet() const noexcept {
    // acquire: pairs with leave()'s release.
    return movers(movers_.load(std::memory_order_acquire)) == kShut;
  }
  /// No round is active: the movers inside are leaving, at most a piece away.
  void wait_until_free() const noexcept;

 private:
  static constexpr std::uint64_t kOne = 1;
  static constexpr std::uint32_t kShut = std::uint32_t{1} << 31;
  static constexpr std::uint32_t movers(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word);
  }
  std::atomic<std::uint64_t> movers_{0};  ///< the high half: their cargo
};

/// Orders the first Start of one half and the acceptance of the channel: the later one opens the
/// round. Thread safety: thread-safe.
class StartGate {
 public:
  /// In Start. True: the caller opens the round. False: the caller of accept() does.
  [[nodiscard]] bool start() {
    if (is_open()) return true;
    const std::scoped_lock lock(mutex_);
    // relaxed: under the mutex.
    start_waits_ = !is_open_.load(std::memory_order_relaxed);
    return !start_waits_;
  }
  /// Once. @param prepare  prepare(start_waits) writes the data that is_open() publishes
  /// @return a Start waits: the caller opens its round
  template <class Prepare>
  [[nodiscard]] bool accept(Prepare&& prepare) {
    const std::scoped_lock lock(mutex_);
    prepare(start_waits_);
    // seq_cst: releases the data of prepare() to is_open(); store-then-look against
    // NetSend::on_demand().
    is_open_.store(true, std::memory_order_seq_cst);
    return std::exchange(start_waits_, false);
  }
  /// seq_cst: pairs with accept()'s store.
  bool is_open() const noexcept { return is_open_.load(std::memory_order_seq_cst); }

 private:
  std::mutex mutex_;
  bool start_waits_ = false;  // guarded by mutex_
  std::atomic<bool> is_open_{false};
};

/// The part of a half of a channel that all transports share. Its users are the threads that move
/// bytes, and the posted operations.
// Thread safety: thread-safe.
// Invariants:
// 1. The first failure stays.
// 2. After shut() no user enters. A failed half is shut by give_up(), on_peer_fail() or
//    failed_once_quiet(), the program's next poll; fail() alone does not shut it.
// 3. A half that has failed sends FAIL once: when it is shut and its last user has left.
// 4. The program gets the buffer of a failed round back when neither side has a user: this half is
//    quiet, and the peer has sent FAIL or is gone.
class ChannelLifetime {
 public:
  /// @param fail_kind  the transport's kind of FAIL records
  ChannelLifetime(InitArgs args, Kind kind, std::shared_ptr<PeerState> peer,
                  std::uint16_t fail_kind) noexcept
      : args_(std::move(args)),
        peer_(std::move(peer)),
        is_send_(kind == Kind::send),
        fail_kind_(fail_kind) {}
  ChannelLifetime(const ChannelLifetime&) = delete;
  ChannelLifetime& operator=(const ChannelLifetime&) = delete;

  const InitArgs& args() const noexcept { return args_; }
  PeerState& peer() const noexcept { return *peer_; }
  /// The sender's number of the channel. relaxed: written before the peer learns of it.
  std::uint64_t channel() const noexcept { return channel_.load(std::memory_order_relaxed); }

  bool has_failed() const noexcept { return failure_.failed(); }
  /// Sets the error that the program gets. Users may still enter, until the half is shut.
  void fail(Status status, std::string text) { failure_.set(status, std::move(text)); }
  /// Fails and shuts the half: from now on no user enters. Any thread.
  void give_up(Status status, std::string text) {
    fail(status, std::move(text));
    shut();
  }
  /// The peer has sent FAIL: its half has failed, and has no user.
  void on_peer_fail(Status status, std::string text) {
    fail(status, std::move(text));
    // release: pairs with failed_once_quiet()'s acquire.
    peer_quiet_.store(true, std::memory_order_release);
    shut();
  }
  /// The peer has freed its half after `rounds` rounds; the last one may still be in flight.
  void on_peer_closed(std::uint64_t rounds) noexcept {
    // release: pairs with peer_rounds()'s acquire.
    peer_rounds_.store(rounds, std::memory_order_release);
  }
  bool peer_closed() const noexcept { return peer_rounds() != kNotClosed; }
  /// acquire: pairs with on_peer_down's release; the caller sees all that the peer moved before.
  bool peer_is_down() const noexcept { return peer_->down.load(std::memory_order_acquire); }
  bool is_idle() const noexcept { return in_use_.is_free(); }
  /// No round is active: the users are leaving.
  void wait_until_idle() const noexcept { in_use_.wait_until_free(); }

  // For error texts.
  std::string own_half() const;    ///< "the partitioned send (...) to peer"
  std::string other_half() const;  ///< "the partitioned receive (...) at peer"

 protected:
  ~ChannelLifetime() = default;
  void leave() noexcept {
    if (in_use_.leave()) on_quiet();
  }
  void shut() {
    if (in_use_.shut()) on_quiet();
  }
  /// The half has no user, and gets none any more.
  virtual void on_quiet();
  /// No FAIL is sent from now on. relaxed: as in on_quiet().
  void keep_silent() noexcept { told_.store(true, std::memory_order_relaxed); }
  /// acquire: pairs with on_peer_fail()'s release: the peer's moves are over.
  bool is_peer_quiet() const noexcept { return peer_quiet_.load(std::memory_order_acquire); }
  /// acquire: pairs with on_peer_closed()'s release: the caller sees all that the peer did before.
  std::uint64_t peer_rounds() const noexcept {
    return peer_rounds_.load(std::memory_order_acquire);
  }
  /// A failed half's round.
  Completion failed_once_quiet(bool is_peer_gone) {
    shut();
    return in_use_.is_quiet() && (is_peer_quiet() || is_peer_gone) ? Completion::failed
                                                                   : Completion::pending;
  }
  /// Fails with the reason why a round can't complete: the peer is down, or has freed its half.
  void fail_without_peer();
  void fail_freed() { fail(Errc::kPeerFreed, other_half() + " has been freed"); }

  const InitArgs args_;
  const std::shared_ptr<PeerState> peer_;
  const bool is_send_;
  const std::uint16_t fail_kind_;
  std::atomic<std::uint64_t> channel_{0};
  FailureSlot failure_;
  InUse in_use_;
  StartGate gate_;

 private:
  friend class Moving;
  static constexpr std::uint64_t kNotClosed = ~std::uint64_t{0};
  std::atomic<bool> told_{false};        // FAIL has been sent
  std::atomic<bool> peer_quiet_{false};  // the peer has sent FAIL
  std::atomic<std::uint64_t> peer_rounds_{kNotClosed};
};

/// A mover's stay in a channel. Thread safety: single-owner.
class Moving {
 public:
  explicit Moving(ChannelLifetime& channel) noexcept
      : channel_(channel), may_move_(channel.in_use_.enter()) {}
  ~Moving() { channel_.leave(); }
  Moving(const Moving&) = delete;
  Moving& operator=(const Moving&) = delete;
  explicit operator bool() const noexcept { return may_move_; }

 private:
  ChannelLifetime& channel_;
  const bool may_move_;
};

}  // namespace larklane::part
