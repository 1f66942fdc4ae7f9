#include "control/remote/remote_peer.hpp"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/tcp.hpp"

namespace larklane::control {

RemotePeer::RemotePeer(PeerHost& host, const Address& address)
    : QueuedPeer(host, address, EPOLLRDHUP, 0),
      dial_(host.remote_terms(), address, host.epoll(), &outgoing_) {}

/// The helper connects, since it keeps the deadline.
Status RemotePeer::open_locked() {
  state_ = State::dialing;
  host_.dial_soon(*this);
  return {};
}

/// After a shortage the helper dials again.
Status RemotePeer::reopen_locked() {
  state_ = State::dialing;
  host_.dial_soon(*this);
  return {};
}

bool RemotePeer::is_dialing() {
  const std::lock_guard lock(mutex_);
  return down_reason_ == Errc::kOk && state_ == State::dialing;
}

std::optional<Reason> RemotePeer::after(RemoteDial::Step step) {
  switch (step) {
    case RemoteDial::Step::waiting:
      return std::nullopt;
    case RemoteDial::Step::later: {
      const std::lock_guard lock(mutex_);
      connect_later_locked(dial_.status().detail());
      return std::nullopt;
    }
    case RemoteDial::Step::failed:
      log_warn_once("control unreachable", "control: no connection to %s: %s", address().c_str(),
                    dial_.text().c_str());
      return Reason{dial_.status(), "no connection to it: " + dial_.text()};
    case RemoteDial::Step::open:
      break;
  }
  UniqueFd fd = dial_.take();
  const Status watched =
      control::watch(host_.epoll(), fd.get(), EPOLLRDHUP, &outgoing_, EPOLL_CTL_MOD);
  if (!watched.ok()) return Reason{watched, "its connection can't be watched"};
  const std::lock_guard lock(mutex_);
  take_connection_locked(std::move(fd));
  flush_locked();
  return std::nullopt;
}

std::optional<Reason> RemotePeer::on_outgoing(std::uint32_t events) {
  if (is_dialing()) return after(dial_.on_event(events));
  if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) return hang_up_reason();
  flush();
  return std::nullopt;
}

std::optional<Reason> RemotePeer::hang_up_reason() {
  const std::lock_guard lock(mutex_);
  if (!fd_) return std::nullopt;  // already reported
  return reason_of(gone_error_ != 0 ? gone_error_ : socket_error(fd_.get()));
}

Reason RemotePeer::reason_of(int error) {
  if (error == 0 || error == EPIPE || error == ECONNRESET) {
    return {Errc::kPeerDown, "its process has ended, or has closed its connection"};
  }
  return {{Errc::kPeerDown, error},
          std::string("nothing has come from its host for the time of "
                      "LARKLANE_CONTROL_SILENCE_NS, or there is no way to it any more: ") +
              std::strerror(error)};
}

}  // namespace larklane::control
