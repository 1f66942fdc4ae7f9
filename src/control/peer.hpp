#pragma once
// A peer and the connection out: this process sends on the connection that it opened itself and
// reads on accepted ones only.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "control/plane.hpp"
#include "control/socket.hpp"
#include "control/source.hpp"
#include "control/wire.hpp"

namespace larklane::control {

class LocalPeer;

/// What peers need of their plane.
class PeerHost {
 public:
  virtual ~PeerHost() = default;
  virtual int epoll() const noexcept = 0;
  virtual const Hello& hello() const noexcept = 0;
  virtual void count_sent() noexcept = 0;
  /// Have the helper call peer.retry() soon.
  virtual void retry_soon(LocalPeer& peer) = 0;
  /// Have the helper report the peer down.
  virtual void report_down(LocalPeer& peer, Status reason) = 0;
};

// Thread safety: thread-safe, but for the members that say that they belong to the helper.
// Invariants:
// 1. Records leave in the order of the calls of send: a record goes to the socket directly only
// when the queue is empty,
//    and both are looked at under mutex_.
// 2. Descriptors travel with the first byte of their record and with no other.
// 3. Unless down: whenever the queue is not empty, EPOLLOUT is armed or the helper has been told to
// retry.
class LocalPeer final : public Peer {
 public:
  LocalPeer(PeerHost& host, Address address);

  const Address& address() const noexcept override { return address_; }
  // relaxed: nothing is published through it
  pid_t pid() const noexcept override { return pid_.load(std::memory_order_relaxed); }
  bool same_process() const noexcept override;
  // acquire: pairs with shut() release
  bool is_down() const noexcept override { return down_.load(std::memory_order_acquire); }
  bool has_ended() override;
  Status send(std::uint16_t kind, std::span<const std::byte> payload,
              std::span<const int> fds) override;

  /// Connect now instead of at the first send. @errors those of Plane::connect
  Status open();
  /// Learn the process id and notice the process's end. @errors kPeerDown: it has ended
  Status watch_process(int socket, const Credentials& credentials);
  /// The socket has room again. Helper only.
  void flush();
  /// Try again what could not be done. True if it must be called again. Helper only.
  bool retry();
  /// Close everything; later sends answer with `reason`. Helper only.
  void shut(Errc reason);
  std::size_t queued_count();

  // The helper's own.
  std::uint64_t nonce = 0;  ///< 0 before the peer's hello
  bool buried = false;      ///< its end is being reported or has been; is_down() from shut() on

 private:
  enum class State : std::uint8_t { closed, connecting, open };
  struct Queued {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;
    bool is_record;  // not the hello
  };

  Status open_locked();
  void connect_later_locked(int error);
  Status attach_locked(UniqueFd fd);
  Status watch_process_locked(int socket, const Credentials& credentials);
  Status enqueue_locked(std::span<const std::span<const std::byte>> pieces, std::size_t sent_bytes,
                        std::span<const int> fds, int error);
  void flush_locked();
  void await_room_locked(int error);

  PeerHost& host_;
  const Address address_;
  Source outgoing_{SourceKind::outgoing, this};
  Source process_{SourceKind::process, this};
  std::atomic<pid_t> pid_{0};
  std::atomic<bool> down_{false};

  std::mutex mutex_;  // before the plane's work queue, after the plane's own
  State state_ = State::closed;
  Errc down_reason_ = Errc::kOk;
  UniqueFd fd_;
  UniqueFd pidfd_;
  std::deque<Queued> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t front_sent_bytes_ = 0;
  bool is_armed_ = false;     // EPOLLOUT
  bool is_retrying_ = false;  // the helper will call retry
};

}  // namespace larklane::control
