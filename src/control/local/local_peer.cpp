#include "control/local/local_peer.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "control/plane/incoming.hpp"

namespace larklane::control {

// Compares with the process id in the hello: asking the kernel is a system call, and a forked child
// has no helper.
bool LocalPeer::same_process() const noexcept { return pid() == host_.hello().pid; }

bool LocalPeer::has_ended() {
  if (!is_down()) return false;
  const std::lock_guard lock(mutex_);
  if (pidfd_ && pidfd_identity_.is_at(pidfd_.get())) return is_over_locked();
  const pid_t process = pid();
  // a peer in this process is down once its plane has been destroyed
  return process == ::getpid() || (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH);
}

Status LocalPeer::open_locked() {
  Result<UniqueFd> connection = connect_to(address());
  const Status opened = connection ? attach_locked(std::move(*connection)) : connection.error();
  if (!opened.ok() && !is_passing(opened)) return opened;
  queue_hello_locked();
  opened.ok() ? flush_locked() : connect_later_locked(opened.detail());
  return {};
}

Status LocalPeer::reopen_locked() {
  Result<UniqueFd> connection = connect_to(address());
  return connection ? attach_locked(std::move(*connection)) : connection.error();
}

/// Checks the process at the other end of a new connection, and serves the connection.
Status LocalPeer::attach_locked(UniqueFd fd) {
  const Credentials credentials = peer_credentials(fd.get());
  if (!is_own_user(credentials)) {
    log_warn_once("control foreign " + address(),
                  "control: %s belongs to user %u, not to ours: not connected", address().c_str(),
                  credentials.uid);
    return Errc::kForeignUser;
  }
  if (watch_process_locked(fd.get(), credentials).code() == Errc::kPeerDown) {
    return Status(Errc::kUnreachable, ESRCH);  // a forked child still holds its listener
  }
  LARKLANE_TRY(watch(host_.epoll(), fd.get(), 0, &outgoing_));  // epoll always reports hang-up
  take_connection_locked(std::move(fd));
  return {};
}

Status LocalPeer::accepted(const Incoming& incoming) {
  const std::lock_guard lock(mutex_);
  return watch_process_locked(incoming.fd(), incoming.credentials());
}

Status LocalPeer::watch_process_locked(int socket, const Credentials& credentials) {
  if (pidfd_ || down_reason_ != Errc::kOk) return {};
  // relaxed: see pid()
  pid_.store(credentials.pid, std::memory_order_relaxed);
  Result<UniqueFd> pidfd = open_pidfd(socket, credentials);
  if (!pidfd) return pidfd.error();
  if (!*pidfd) return {};
  LARKLANE_TRY(watch(host_.epoll(), pidfd->get(), EPOLLIN, &process_));
  pidfd_ = std::move(*pidfd);
  pidfd_identity_ = FdIdentity(pidfd_.get());
  return {};
}

std::optional<Reason> LocalPeer::on_outgoing(std::uint32_t events) {
  if ((events & (EPOLLHUP | EPOLLERR)) == 0) {
    flush();
    return std::nullopt;
  }
  const std::lock_guard lock(mutex_);
  // the event may belong to a connection that a later one has replaced
  pollfd ended{fd_.get(), 0, 0};
  if (!fd_ || ::poll(&ended, 1, 0) != 1) return std::nullopt;
  if (is_sent_away_locked()) {
    come_again_locked();
    return std::nullopt;
  }
  return Reason{Errc::kPeerDown, end_text_locked()};
}

bool LocalPeer::is_over_locked() const noexcept {
  pollfd gone{pidfd_.get(), POLLIN, 0};
  return pidfd_ && ::poll(&gone, 1, 0) == 1;
}

/// An ending process closes its sockets a moment before its pidfd reports the end.
std::string LocalPeer::end_text_locked() const {
  return is_over_locked() ? "its process has ended" : "it has closed its connection";
}

std::string LocalPeer::end_text() {
  const std::lock_guard lock(mutex_);
  return end_text_locked();
}

/// The peer sends kComeAgain before it stops reading, so the word is here when a send fails.
bool LocalPeer::is_sent_away_locked() {
  std::uint32_t word = 0;
  return ::recv(fd_.get(), &word, sizeof word, MSG_DONTWAIT) == ssize_t{sizeof word} &&
         word == kComeAgain;
}

/// pidfd_ stays open for has_ended().
void LocalPeer::shut_locked() {
  if (pidfd_ && !pidfd_identity_.is_at(pidfd_.get())) (void)pidfd_.release();
  if (pidfd_) unwatch(host_.epoll(), pidfd_.get());
}

}  // namespace larklane::control
