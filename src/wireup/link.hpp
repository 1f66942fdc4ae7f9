#pragma once
// The state machine of one end of a link: offer, connect, greet, ready, over.
// (docs/design/protocols/wireup.md; tests/protocol/wireup.pml)

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"

namespace larklane::wireup {

// Thread safety: the user's lock guards all calls, except for answered(), which the lane's lock
// guards.
// Invariants:
// 1. Each end is opened once, offered once after that, and connected to one offer of the peer.
// 2. A link is ready only after both ends are connected. A link that is connected by use is ready
//    only after the answer to one side's greeting.
// 3. on_ready() is called at most once, on_over() at most once, and nothing after on_over().
// 4. A side that gives a link up informs the peer, unless the peer is gone. If the peer does not
//    have the link's offer yet, it is informed when it offers.
class Link {
 public:
  enum class State : std::uint8_t {
    unopened,   ///< this side has no end yet
    offered,    ///< the peer has this end's offer, or is about to get it
    connected,  ///< this end is connected: the peer may use the link, or greet
    greeting,   ///< this side's greeting is posted, or answered
    ready,      ///< this side may use the link, too
    over,       ///< refused, lost, or the peer is gone
  };
  /// The side that posts first on a link that is connected by use.
  enum class First : std::uint8_t { either, ours, theirs };
  enum class Cause : std::uint8_t {
    here,  ///< this side has found that the link can't work
    peer,  ///< the peer has reported that
    gone,  ///< the peer has left, or died
  };

  virtual ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// The side with the greater offer, byte by byte, greets the other one.
  static First first_of(std::span<const std::byte> ours, std::span<const std::byte> theirs);

  State state() const noexcept { return state_; }
  bool is_connected() const noexcept { return state_ >= State::connected && !is_over(); }
  bool is_ready() const noexcept { return state_ == State::ready; }
  bool is_over() const noexcept { return state_ == State::over; }
  /// on_ready() has been called; the link may be over since.
  bool has_been_ready() const noexcept { return has_been_ready_; }
  /// The helper has to poll this end's lane: a greeting is expected, or posted.
  bool is_served() const noexcept { return is_served_; }
  /// The error of a link that is over.
  Status failure() const noexcept { return failure_; }

  /// Opens and offers this end, on the first call.
  /// @errors of open(): the link is over; of send_offer(): the peer is gone
  Status want();
  /// The peer's offer. @errors kProtocol: a second one
  Status hear_offer(std::span<const std::byte> offer);
  /// The peer's ready, or the error that ends the link. @errors kProtocol: a second ready
  Status hear_ready(Status status);
  /// This side can't use the link, or no longer can. The peer is informed.
  void lose(Status status);
  /// As lose(), for a link that the peer does not know yet.
  void give_up(Status status) { finish(status, Cause::here); }
  /// The peer is gone.
  void end(Status status) { finish(status, Cause::gone); }

 protected:
  Link() = default;
  /// The result of this side's greeting. With the lane's lock held; once.
  void answered(Status status);

 private:
  // Calls to the user, with the user's lock held, except for send_ready() from answered().
  virtual Status open() = 0;
  virtual std::vector<std::byte> offer() const = 0;
  virtual Status send_offer() = 0;
  virtual Status connect(std::span<const std::byte> offer) = 0;
  virtual bool is_connected_by_use() const = 0;
  /// Not ok: the link can't be used.
  virtual void send_ready(Status status) = 0;
  /// Posts the first operation. Its completion calls answered().
  virtual void greet() = 0;
  /// is_served() has changed.
  virtual void on_served() = 0;
  /// The link accepts posts.
  virtual void on_ready() = 0;
  virtual void on_over(Status status, Cause cause) = 0;

  void serve(bool is_served);
  void begin();
  void finish(Status status, Cause cause);

  State state_ = State::unopened;
  First first_ = First::either;
  bool is_served_ = false;
  bool has_been_ready_ = false;
  Status failure_;
  Status answer_;  // written before is_answered_
  std::atomic<bool> is_answered_{false};
};

}  // namespace larklane::wireup
