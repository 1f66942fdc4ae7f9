#pragma once
// A peer and the connection out: this process sends on the connection that it opened itself and
// reads on accepted ones only. What all peers have in common; how the connection comes about is
// local_peer.hpp's and remote_peer.hpp's.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd_identity.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "control/helper/source.hpp"
#include "control/plane/plane.hpp"
#include "control/plane/wire.hpp"

namespace larklane::control {

class Incoming;
class QueuedPeer;
class RemotePeer;
struct RemoteTerms;

/// Why a peer is down.
struct Reason {
  Status status;
  std::string text;  ///< for people
};

/// What peers need of their plane.
class PeerHost {
 public:
  virtual ~PeerHost() = default;
  virtual int epoll() const noexcept = 0;
  virtual const Hello& hello() const noexcept = 0;
  /// Only if there is a remote peer.
  virtual const RemoteTerms& remote_terms() const noexcept = 0;
  virtual void count_sent(std::uint32_t records) noexcept = 0;
  /// Have the helper call flush_later() of all peers after kLaterNs. Makes a system call only if it
  /// is not to do so already.
  virtual void flush_soon() noexcept = 0;
  /// Have the helper call peer.retry() soon.
  virtual void retry_soon(QueuedPeer& peer) = 0;
  /// Have the helper call peer.dial() soon, and peer.on_time() from then on.
  virtual void dial_soon(RemotePeer& peer) = 0;
  /// Have the helper report the peer down.
  virtual void report_down(QueuedPeer& peer, Reason reason) = 0;
};

// Thread safety: thread-safe, but for the members that say that they belong to the helper.
// Invariants:
// 1. Records leave in the order of the calls of send: a record goes to the socket directly only
// when the queue is empty, and both are looked at under mutex_.
// 2. Descriptors travel with the first byte of their record and with no other.
// 3. What waits in later_ comes after all that is queued, and before the next record of send.
// Model: tests/protocol/later.pml.
// 4. Unless down: whenever the queue is not empty, EPOLLOUT is armed, the helper has been told to
// retry, or it is dialing and flushes when there is a connection.
class QueuedPeer : public Peer {
 public:
  const Address& address() const noexcept final { return address_; }
  // acquire: pairs with shut() release
  bool is_down() const noexcept final { return down_.load(std::memory_order_acquire); }
  std::string down_reason() final;
  Status send(std::uint16_t kind, std::span<const std::byte> payload,
              std::span<const int> fds) final;
  Status send_later(std::uint16_t kind, std::span<const std::byte> payload) final;
  void flush_later() final;
  bool has_room() final;

  /// Connect now instead of at the first send. @errors those of Plane::connect
  Status open();
  /// It has opened a connection to us and introduced itself. @errors kPeerDown: it has ended
  virtual Status accepted(const Incoming& incoming) = 0;
  /// Events of the connection out. @return why the peer is down, if it is. Helper only.
  virtual std::optional<Reason> on_outgoing(std::uint32_t events) = 0;
  /// Try again what could not be done. True if it must be called again. Helper only.
  bool retry();
  /// Its end of our connection is closed: no more is sent. is_down() comes later. Helper only.
  void hang_up(Status reason);
  /// Close everything; later sends answer with the reason. Helper only.
  void shut(const Reason& reason);
  std::size_t queued_count();
  /// The program has closed the descriptor of the connection out. A system call.
  bool is_robbed();

  // The helper's own.
  std::uint64_t nonce = 0;  ///< 0 before the peer's hello
  bool buried = false;      ///< its end is being reported or has been; is_down() from shut() on

 protected:
  /// `connecting` waits for a retry. `dialing`: the helper makes the connection step by step.
  enum class State : std::uint8_t { closed, connecting, dialing, open };
  /// @param always  epoll events that are always waited for @param fds_max  with one record
  QueuedPeer(PeerHost& host, Address address, std::uint32_t always, std::size_t fds_max);

  // With mutex_ held.
  /// From closed to any other state.
  virtual Status open_locked() = 0;
  /// From connecting, on the helper. A passing error (is_passing): again, later.
  virtual Status reopen_locked() = 0;
  virtual void shut_locked() = 0;
  /// The other end has closed the connection, and has not lost anything that was sent.
  virtual bool is_sent_away_locked() { return false; }
  /// Sends what is queued on another connection.
  void come_again_locked();
  void connect_later_locked(int error);
  /// `fd` is in the epoll set with outgoing_.
  void take_connection_locked(UniqueFd fd);
  void queue_hello_locked();
  /// Sends what is queued while there is room.
  void flush_locked();
  void flush();
  /// It may go better later: the peer's backlog is full, or this process or machine is short of
  /// something.
  static bool is_passing(Status status) noexcept;

  PeerHost& host_;
  Source outgoing_{SourceKind::outgoing, this};
  std::mutex mutex_;  // before the plane's work queue, after the plane's own
  // guarded by mutex_
  State state_ = State::closed;
  Errc down_reason_ = Errc::kOk;
  int down_error_ = 0;
  UniqueFd fd_;
  FdIdentity identity_;  ///< of fd_
  int gone_error_ = 0;   ///< of a send: the kernel tells it once only

 private:
  struct Queued {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;
    std::uint32_t records;  // 0: the hello
  };

  Status send_locked(std::uint16_t kind, std::span<const std::byte> payload,
                     std::span<const int> fds);
  Status enqueue_locked(std::span<const std::span<const std::byte>> pieces, std::size_t sent_bytes,
                        std::span<const int> fds, int error);
  void push_locked(Queued queued, std::size_t sent_bytes, int error);
  /// Sends or queues them. @errors of the connection, after which nothing is sent
  Status send_all_later_locked();
  void drop_served_locked();
  void await_room_locked(int error);
  /// The kernel refuses to send to it, and will go on to.
  Status report_unsendable_locked(int error);
  void close_connection_locked();

  const Address address_;
  const std::uint32_t always_;
  const std::size_t fds_max_;
  std::atomic<bool> down_{false};

  // guarded by mutex_
  std::string down_text_;
  std::deque<Queued> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t front_sent_bytes_ = 0;
  std::vector<std::byte> later_;  // whole records of send_later
  std::uint32_t later_count_ = 0;
  bool is_armed_ = false;     // EPOLLOUT
  bool is_retrying_ = false;  // the helper will call retry
};

}  // namespace larklane::control
