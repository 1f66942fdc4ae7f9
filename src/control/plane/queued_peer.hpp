#pragma once
// The base of all peers, and the connection out. This process sends on the connection that it
// opened itself, and reads on accepted ones only. local_peer.hpp and remote_peer.hpp make the
// connection.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
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

/// The reason why a peer is down.
struct Reason {
  Status status;
  std::string text;  ///< for people
};

/// The services of a plane for its peers.
class PeerHost {
 public:
  virtual ~PeerHost() = default;
  virtual int epoll() const noexcept = 0;
  virtual const Hello& hello() const noexcept = 0;
  /// Only if there is a remote peer.
  virtual const RemoteTerms& remote_terms() const noexcept = 0;
  virtual void count_sent(std::uint32_t records) noexcept = 0;
  /// Makes the helper call flush_later() of all peers after kLaterNs. Makes a system call only if
  /// no such call is pending.
  virtual void flush_soon() noexcept = 0;
  /// Makes the helper call peer.retry() soon.
  virtual void retry_soon(QueuedPeer& peer) = 0;
  /// Makes the helper call peer.dial() soon, and peer.on_time() from then on.
  virtual void dial_soon(RemotePeer& peer) = 0;
  /// Makes the helper report the peer down.
  virtual void report_down(QueuedPeer& peer, Reason reason) = 0;
};

// Thread safety: thread-safe, except the members that are marked as the helper's.
// Invariants:
// 1. Records leave in the order of the calls of send. A record goes to the socket directly only
// when the queue is empty, and the caller checks both under mutex_.
// 2. Descriptors travel with the first byte of their record and with no other.
// 3. Records in later_ leave after all queued ones, and before the next record of send.
// Model: tests/protocol/later.pml.
// 4. Unless the peer is down, a queue that is not empty has one of three: EPOLLOUT is armed, the
// helper will retry, or the helper is dialing and flushes when there is a connection.
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

  /// Connects now instead of at the first send. @errors those of Plane::connect
  Status open();
  /// The peer has opened a connection to this process and introduced itself. @errors kPeerDown: it
  /// has ended
  virtual Status accepted(const Incoming& incoming) = 0;
  /// Events of the connection out. @return the reason if the peer is down. Helper only.
  virtual std::optional<Reason> on_outgoing(std::uint32_t events) = 0;
  /// Retries a failed connection or flush. True: call it again. Helper only.
  bool retry();
  /// The peer has closed its end of the connection out: nothing more is sent. is_down() follows
  /// later. Helper only.
  void hang_up(Status reason);
  /// Closes everything; later sends return the reason. Helper only.
  void shut(const Reason& reason);
  std::size_t queued_count();
  /// The program has closed the descriptor of the connection out. Makes a system call.
  bool is_robbed();

  // The helper's own.
  std::uint64_t nonce = 0;  ///< 0 before the peer's hello
  bool buried = false;      ///< its end is being reported or has been; is_down() from shut() on

 protected:
  /// `connecting` waits for a retry. `dialing`: the helper makes the connection step by step.
  enum class State : std::uint8_t { closed, connecting, dialing, open };
  /// @param always  epoll events that it always waits for @param fds_max  with one record
  QueuedPeer(PeerHost& host, Address address, std::uint32_t always, std::size_t fds_max);

  // With mutex_ held.
  /// From closed to any other state.
  virtual Status open_locked() = 0;
  /// From connecting, on the helper. After a passing error (is_passing) the helper retries later.
  virtual Status reopen_locked() = 0;
  virtual void shut_locked() = 0;
  /// True: the other end has closed the connection, and has lost nothing that was sent.
  virtual bool is_sent_away_locked() { return false; }
  /// Sends the queued records on another connection.
  void come_again_locked();
  void connect_later_locked(int error);
  /// `fd` is in the epoll set with outgoing_.
  void take_connection_locked(UniqueFd fd);
  void queue_hello_locked();
  /// Sends queued records while there is room.
  void flush_locked();
  void flush();
  /// A retry may succeed: the peer's backlog is full, or this process or machine is short of a
  /// resource.
  static bool is_passing(Status status) noexcept;

  PeerHost& host_;
  Source outgoing_{SourceKind::outgoing, this};
  std::mutex mutex_;  // locked before the plane's work_mutex_, after its mutex_
  // guarded by mutex_
  State state_ = State::closed;
  Errc down_reason_ = Errc::kOk;
  int down_error_ = 0;
  UniqueFd fd_;
  FdIdentity identity_;  ///< of fd_
  int gone_error_ = 0;   ///< of a send: the kernel reports it only once

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
  /// Sends or queues the records of send_later(). @errors of the connection, after which nothing is
  /// sent
  Status send_all_later_locked();
  void drop_served_locked();
  void await_room_locked(int error);
  /// The kernel refuses to send to the peer, now and later.
  Status report_unsendable_locked(int error);
  void close_connection_locked();

  const Address address_;
  const std::uint32_t always_;
  const std::size_t fds_max_;
  std::atomic<bool> down_{false};

  // guarded by mutex_
  std::string down_text_;
  std::list<Queued> queue_;  // nearly always empty: then a deque would take 576 bytes
  std::size_t queued_bytes_ = 0;
  std::size_t front_sent_bytes_ = 0;
  std::vector<std::byte> later_;  // whole records of send_later
  std::uint32_t later_count_ = 0;
  bool is_armed_ = false;     // EPOLLOUT
  bool is_retrying_ = false;  // the helper will call retry
};

}  // namespace larklane::control
