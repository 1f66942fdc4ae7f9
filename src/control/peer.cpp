#include "control/peer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"

namespace larklane::control {
namespace {

/// A peer that takes nothing (stopped, never served) may cost this much memory, and no more.
constexpr std::size_t kQueuedBytesMax = std::size_t{64} << 20;

bool is_gone(int error) noexcept {
  return error == EPIPE || error == ECONNRESET || error == ENOTCONN;
}

/// It may go better later: the peer's backlog is full, or this process or machine is short of
/// something.
bool is_passing(Status status) noexcept {
  if (status.code() != Errc::kSystem) return false;
  const int error = status.detail();
  return error == EAGAIN || error == EMFILE || error == ENFILE || error == ENOMEM ||
         error == ENOBUFS || error == ENOSPC;
}

}  // namespace

LocalPeer::LocalPeer(PeerHost& host, Address address) : host_(host), address_(std::move(address)) {}

bool LocalPeer::same_process() const noexcept { return pid() == ::getpid(); }

bool LocalPeer::has_ended() {
  if (!is_down()) return false;
  const std::lock_guard lock(mutex_);
  if (pidfd_) {
    pollfd gone{pidfd_.get(), POLLIN, 0};
    return ::poll(&gone, 1, 0) == 1;
  }
  const pid_t process = pid();
  // a plane of this process is down when it has been destroyed
  return process == ::getpid() || (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH);
}

Status LocalPeer::send(std::uint16_t kind, std::span<const std::byte> payload,
                       std::span<const int> fds) {
  if (payload.size() > kRecordBytesMax || fds.size() > kRecordFdsMax) return Errc::kInvalidArgument;
  RecordHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.kind = kind;
  header.fd_count = static_cast<std::uint16_t>(fds.size());
  constexpr std::array<std::byte, kRecordAlign> kZeros{};
  const std::size_t total = record_bytes(payload.size());
  const std::array<std::span<const std::byte>, 3> pieces = {
      std::as_bytes(std::span(&header, 1)), payload,
      std::span(kZeros).first(total - sizeof header - payload.size())};

  const std::lock_guard lock(mutex_);
  if (down_reason_ != Errc::kOk) return down_reason_;
  if (state_ == State::closed) {
    const Status opened = open_locked();
    if (!opened.ok() && opened.code() != Errc::kSystem) {
      // it had a name when it connected to us: it is going, whether or not its own connection has
      // closed yet
      host_.report_down(*this, Errc::kPeerDown);
      return Status(Errc::kPeerDown, opened.detail());
    }
    LARKLANE_TRY(opened);
  }
  if (state_ != State::open || !queue_.empty()) return enqueue_locked(pieces, 0, fds, EAGAIN);
  const ssize_t sent = send_some(fd_.get(), pieces, 0, fds);
  if (sent < 0) {
    const int error = static_cast<int>(-sent);
    if (error == EBADF) return Status(Errc::kInvalidArgument, error);
    if (is_gone(error)) return Status(Errc::kPeerDown, error);  // the helper sees the hang-up
    return enqueue_locked(pieces, 0, fds, error);
  }
  if (static_cast<std::size_t>(sent) < total) {
    return enqueue_locked(pieces, static_cast<std::size_t>(sent), {}, EAGAIN);
  }
  host_.count_sent();
  return {};
}

/// @param error  why it could not be sent at once
Status LocalPeer::enqueue_locked(std::span<const std::span<const std::byte>> pieces,
                                 std::size_t sent_bytes, std::span<const int> fds, int error) {
  Queued record{{}, {}, true};
  for (const std::span<const std::byte> piece : pieces) {
    record.bytes.insert(record.bytes.end(), piece.begin(), piece.end());
  }
  // a record that is partly sent can't be refused
  if (sent_bytes == 0 && queued_bytes_ + record.bytes.size() > kQueuedBytesMax) {
    return Errc::kNoMemory;
  }
  for (const int fd : fds) {
    UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) return Status(errno == EBADF ? Errc::kInvalidArgument : Errc::kSystem, errno);
    record.fds.push_back(std::move(copy));
  }
  const bool was_empty = queue_.empty();
  queued_bytes_ += record.bytes.size();
  queue_.push_back(std::move(record));
  if (was_empty) {
    front_sent_bytes_ = sent_bytes;
    await_room_locked(error);
  }
  return {};
}

Status LocalPeer::open() {
  const std::lock_guard lock(mutex_);
  return open_locked();
}

Status LocalPeer::open_locked() {
  Result<UniqueFd> connection = connect_to(address_);
  const Status opened = connection ? attach_locked(std::move(*connection)) : connection.error();
  if (!opened.ok() && !is_passing(opened)) return opened;
  const auto hello = std::as_bytes(std::span(&host_.hello(), 1));
  queue_.push_back({{hello.begin(), hello.end()}, {}, false});
  queued_bytes_ += hello.size();
  opened.ok() ? flush_locked() : connect_later_locked(opened.detail());
  return {};
}

/// What is sent until then waits in the queue: a record must not be lost because descriptors are
/// short.
void LocalPeer::connect_later_locked(int error) {
  state_ = State::connecting;
  if (error != EAGAIN)
    log_warn_once("control connect", "control: no connection to %s yet: %s; trying again",
                  address_.c_str(), std::strerror(error));
  await_room_locked(error);
}

/// A connection has been made: check who is there and serve it.
Status LocalPeer::attach_locked(UniqueFd fd) {
  const Credentials credentials = peer_credentials(fd.get());
  if (!is_own_user(credentials)) {
    log_warn_once("control foreign " + address_,
                  "control: %s belongs to user %u, not to ours: not connected", address_.c_str(),
                  credentials.uid);
    return Errc::kForeignUser;
  }
  if (watch_process_locked(fd.get(), credentials).code() == Errc::kPeerDown) {
    return Status(Errc::kUnreachable, ESRCH);  // a forked child still holds its listener
  }
  LARKLANE_TRY(watch(host_.epoll(), fd.get(), 0, &outgoing_));  // hang-up is reported unasked
  fd_ = std::move(fd);
  state_ = State::open;
  return {};
}

Status LocalPeer::watch_process(int socket, const Credentials& credentials) {
  const std::lock_guard lock(mutex_);
  return watch_process_locked(socket, credentials);
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
  return {};
}

void LocalPeer::flush() {
  const std::lock_guard lock(mutex_);
  flush_locked();
}

void LocalPeer::flush_locked() {
  while (fd_ && !queue_.empty()) {
    Queued& front = queue_.front();
    std::array<int, kRecordFdsMax> fds{};
    std::size_t fd_count = 0;
    for (const UniqueFd& fd : front.fds) fds[fd_count++] = fd.get();
    const std::span<const std::byte> bytes(front.bytes);
    const ssize_t sent = send_some(fd_.get(), std::span(&bytes, 1), front_sent_bytes_,
                                   std::span(fds).first(fd_count));
    if (sent < 0 && is_gone(static_cast<int>(-sent))) return;  // the helper sees the hang-up
    if (sent < 0) return await_room_locked(static_cast<int>(-sent));
    front.fds.clear();
    front_sent_bytes_ += static_cast<std::size_t>(sent);
    if (front_sent_bytes_ < front.bytes.size()) continue;
    if (front.is_record) host_.count_sent();
    queued_bytes_ -= front.bytes.size();
    front_sent_bytes_ = 0;
    queue_.pop_front();
  }
  if (is_armed_ && fd_) {
    is_armed_ = !watch(host_.epoll(), fd_.get(), 0, &outgoing_, EPOLL_CTL_MOD).ok();
  }
}

void LocalPeer::await_room_locked(int error) {
  if (state_ == State::open && error == EAGAIN) {
    if (is_armed_) return;
    is_armed_ = watch(host_.epoll(), fd_.get(), EPOLLOUT, &outgoing_, EPOLL_CTL_MOD).ok();
    if (is_armed_) return;
  }
  // the backlog is full, or a shortage (memory, descriptors) that epoll can't see the end of
  if (!is_retrying_) {
    is_retrying_ = true;
    host_.retry_soon(*this);
  }
}

bool LocalPeer::retry() {
  const std::lock_guard lock(mutex_);
  is_retrying_ = false;
  if (down_reason_ != Errc::kOk) return false;
  if (state_ == State::connecting) {
    Result<UniqueFd> connection = connect_to(address_);
    const Status attached = connection ? attach_locked(std::move(*connection)) : connection.error();
    if (is_passing(attached)) return is_retrying_ = true;
    if (!attached.ok()) {
      host_.report_down(*this, attached);
      return false;
    }
  }
  flush_locked();
  return false;
}

void LocalPeer::shut(Errc reason) {
  const std::lock_guard lock(mutex_);
  down_reason_ = reason;
  if (fd_) unwatch(host_.epoll(), fd_.get());
  if (pidfd_) unwatch(host_.epoll(), pidfd_.get());
  fd_.reset();  // pidfd_ stays, for has_ended
  queue_.clear();
  queued_bytes_ = 0;
  // release: pairs with is_down() acquire
  down_.store(true, std::memory_order_release);
}

std::size_t LocalPeer::queued_count() {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

}  // namespace larklane::control
