#include "control/plane/queued_peer.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/log.hpp"
#include "control/local/socket.hpp"

namespace larklane::control {
namespace {

/// With more bytes queued for a peer that takes nothing (stopped, never served), has_room() is
/// false.
constexpr std::size_t kQueuedBytesMax = std::size_t{64} << 20;
/// The most that send_later() gathers, about as much as a socket takes at once. A caller that sends
/// sooner wakes the peer's helper, perhaps on the caller's core, in the middle of its work.
constexpr std::size_t kLaterBytesMax = std::size_t{256} << 10;

bool is_gone(int error) noexcept {
  return error == EPIPE || error == ECONNRESET || error == ENOTCONN || error == ETIMEDOUT ||
         error == EHOSTUNREACH || error == ENETUNREACH || error == ECONNABORTED;
}

}  // namespace

QueuedPeer::QueuedPeer(PeerHost& host, Address address, std::uint32_t always, std::size_t fds_max)
    : host_(host), address_(std::move(address)), always_(always), fds_max_(fds_max) {}

bool QueuedPeer::is_passing(Status status) noexcept {
  if (status.code() != Errc::kSystem) return false;
  const int error = status.detail();
  return error == EAGAIN || error == EMFILE || error == ENFILE || error == ENOMEM ||
         error == ENOBUFS || error == ENOSPC || error == ETOOMANYREFS;
}

std::string QueuedPeer::down_reason() {
  const std::lock_guard lock(mutex_);
  return is_down() ? down_text_ : std::string();
}

Status QueuedPeer::send(std::uint16_t kind, std::span<const std::byte> payload,
                        std::span<const int> fds) {
  if (payload.size() > kRecordBytesMax || fds.size() > fds_max_) return Errc::kInvalidArgument;
  const std::lock_guard lock(mutex_);
  return send_locked(kind, payload, fds);
}

Status QueuedPeer::send_later(std::uint16_t kind, std::span<const std::byte> payload) {
  if (payload.size() > kRecordBytesMax) return Errc::kInvalidArgument;
  const std::size_t total = record_bytes(payload.size());
  const std::lock_guard lock(mutex_);
  if (down_reason_ != Errc::kOk) return Status(down_reason_, down_error_);
  // Without a connection, the first record shows whether one is possible.
  if (state_ == State::closed) return send_locked(kind, payload, {});
  const std::size_t at = later_.size();
  later_.resize(at + total);  // the padding is zero
  const RecordHeader header{kWireMagic, static_cast<std::uint32_t>(payload.size()), kind, 0, 0};
  std::memcpy(later_.data() + at, &header, sizeof header);
  std::copy(payload.begin(), payload.end(), later_.data() + at + sizeof header);
  ++later_count_;
  if (later_.size() > kLaterBytesMax) return send_all_later_locked();
  if (at == 0) host_.flush_soon();
  return {};
}

bool QueuedPeer::has_room() {
  const std::lock_guard lock(mutex_);
  return queued_bytes_ + later_.size() <= kQueuedBytesMax;
}

void QueuedPeer::flush_later() {
  const std::lock_guard lock(mutex_);
  (void)send_all_later_locked();  // the helper reports the peer down
}

/// The helper sees the hang-up, and reports the peer down.
Status QueuedPeer::send_all_later_locked() {
  if (later_.empty()) return {};
  const std::span<const std::byte> bytes(later_);
  const std::uint32_t records = std::exchange(later_count_, 0);
  const bool is_direct = state_ == State::open && queue_.empty();
  const bool is_ours = !is_direct || identity_.is_at(fd_.get());  // else closed by the program
  const ssize_t sent = is_direct && is_ours ? send_some(fd_.get(), std::span(&bytes, 1), 0, {})
                                            : (is_ours ? -EAGAIN : -EPIPE);
  int error = sent < 0 ? static_cast<int>(-sent) : EAGAIN;
  if (is_ours && is_gone(error) && is_sent_away_locked()) {
    come_again_locked();
    error = EAGAIN;
  }
  Status status;
  if (is_gone(error)) {
    gone_error_ = error;
    status = Status(Errc::kPeerDown, error);
  } else if (!is_passing({Errc::kSystem, error})) {
    status = report_unsendable_locked(error);
  } else if (sent < 0 || static_cast<std::size_t>(sent) < bytes.size()) {
    push_locked({later_, {}, records}, sent < 0 ? 0 : static_cast<std::size_t>(sent), error);
  } else {
    host_.count_sent(records);
  }
  later_.clear();
  return status;
}

Status QueuedPeer::send_locked(std::uint16_t kind, std::span<const std::byte> payload,
                               std::span<const int> fds) {
  RecordHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.kind = kind;
  header.fd_count = static_cast<std::uint16_t>(fds.size());
  constexpr std::array<std::byte, kRecordAlign> kZeros{};
  const std::size_t total = record_bytes(payload.size());
  const std::array<std::span<const std::byte>, 3> pieces = {
      std::as_bytes(std::span(&header, 1)), payload,
      std::span(kZeros).first(total - sizeof header - payload.size())};

  if (down_reason_ != Errc::kOk) return Status(down_reason_, down_error_);
  LARKLANE_TRY(send_all_later_locked());
  if (state_ == State::closed) {
    const Status opened = open_locked();
    if (!opened.ok() && opened.code() != Errc::kSystem) {
      // it had a name when it connected to this process: it is ending, even if its own connection
      // is still open
      host_.report_down(*this, {Errc::kPeerDown, "nobody listens at its address any more"});
      return Status(Errc::kPeerDown, opened.detail());
    }
    LARKLANE_TRY(opened);
  }
  if (state_ != State::open || !queue_.empty()) return enqueue_locked(pieces, 0, fds, EAGAIN);
  if (!identity_.is_at(fd_.get())) return Status(Errc::kPeerDown, EBADF);  // closed by the program
  const ssize_t sent = send_some(fd_.get(), pieces, 0, fds);
  if (sent < 0) {
    int error = static_cast<int>(-sent);
    if (error == EBADF) return Status(Errc::kInvalidArgument, error);
    if (is_gone(error) && is_sent_away_locked()) {
      come_again_locked();
      error = EAGAIN;
    } else if (is_gone(error)) {  // the helper sees the hang-up
      gone_error_ = error;
      return Status(Errc::kPeerDown, error);
    }
    if (!is_passing({Errc::kSystem, error})) return report_unsendable_locked(error);
    return enqueue_locked(pieces, 0, fds, error);
  }
  if (static_cast<std::size_t>(sent) < total) {
    return enqueue_locked(pieces, static_cast<std::size_t>(sent), fds, EAGAIN);
  }
  host_.count_sent(1);
  return {};
}

/// @param error  the reason why it could not be sent at once
Status QueuedPeer::enqueue_locked(std::span<const std::span<const std::byte>> pieces,
                                  std::size_t sent_bytes, std::span<const int> fds, int error) {
  Queued record{{}, {}, 1};
  for (const std::span<const std::byte> piece : pieces) {
    record.bytes.insert(record.bytes.end(), piece.begin(), piece.end());
  }
  for (const int fd : fds) {
    UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    // The peer has them with the first byte: a copy serves only a repeated connection.
    if (!copy && sent_bytes != 0) break;
    if (!copy) return Status(errno == EBADF ? Errc::kInvalidArgument : Errc::kSystem, errno);
    record.fds.push_back(std::move(copy));
  }
  push_locked(std::move(record), sent_bytes, error);
  return {};
}

void QueuedPeer::push_locked(Queued queued, std::size_t sent_bytes, int error) {
  const bool was_empty = queue_.empty();
  queued_bytes_ += queued.bytes.size();
  queue_.push_back(std::move(queued));
  if (!was_empty) return;
  front_sent_bytes_ = sent_bytes;
  await_room_locked(error);
}

Status QueuedPeer::open() {
  const std::lock_guard lock(mutex_);
  return open_locked();
}

/// Records wait in the queue until then: a shortage of descriptors must lose none.
void QueuedPeer::connect_later_locked(int error) {
  state_ = State::connecting;
  if (error != EAGAIN)
    log_warn_once("control connect", "control: no connection to %s yet: %s; trying again",
                  address_.c_str(), std::strerror(error));
  await_room_locked(error);
}

/// The receiver serves every record that the socket has taken as a whole: it stops taking bytes,
/// then reads the rest.
void QueuedPeer::drop_served_locked() {
  if (queue_.empty() || queue_.front().records < 2) return;
  Queued& front = queue_.front();
  std::size_t served_bytes = 0;
  std::uint32_t served = 0;
  while (served < front.records) {
    RecordHeader header;
    std::memcpy(&header, front.bytes.data() + served_bytes, sizeof header);
    const std::size_t end = served_bytes + record_bytes(header.payload_bytes);
    if (end > front_sent_bytes_) break;
    served_bytes = end;
    ++served;
  }
  front.bytes.erase(front.bytes.begin(),
                    front.bytes.begin() + static_cast<std::ptrdiff_t>(served_bytes));
  front.records -= served;
  queued_bytes_ -= served_bytes;
  host_.count_sent(served);
}

/// Sends a partly sent record once more, as a whole: its receiver has dropped the part.
void QueuedPeer::come_again_locked() {
  drop_served_locked();
  unwatch(host_.epoll(), fd_.get());
  fd_.reset();
  is_armed_ = false;
  front_sent_bytes_ = 0;
  if (queue_.empty() || queue_.front().records != 0) {
    queue_hello_locked();
    std::rotate(queue_.begin(), std::prev(queue_.end()), queue_.end());
  }
  connect_later_locked(EAGAIN);
}

void QueuedPeer::take_connection_locked(UniqueFd fd) {
  fd_ = std::move(fd);
  identity_ = FdIdentity(fd_.get());
  state_ = State::open;
}

void QueuedPeer::queue_hello_locked() {
  const auto hello = std::as_bytes(std::span(&host_.hello(), 1));
  queue_.push_back({{hello.begin(), hello.end()}, {}, 0});
  queued_bytes_ += hello.size();
}

void QueuedPeer::flush() {
  const std::lock_guard lock(mutex_);
  flush_locked();
}

void QueuedPeer::flush_locked() {
  if (fd_ && !identity_.is_at(fd_.get())) return;  // closed by the program
  while (fd_ && !queue_.empty()) {
    Queued& front = queue_.front();
    std::array<int, kRecordFdsMax> fds{};
    std::size_t fd_count = 0;
    if (front_sent_bytes_ == 0)  // kept: it may have to be sent again
      for (const UniqueFd& fd : front.fds) fds[fd_count++] = fd.get();
    const std::span<const std::byte> bytes(front.bytes);
    const ssize_t sent = send_some(fd_.get(), std::span(&bytes, 1), front_sent_bytes_,
                                   std::span(fds).first(fd_count));
    if (sent < 0 && is_gone(static_cast<int>(-sent))) {
      if (is_sent_away_locked()) return come_again_locked();
      gone_error_ = static_cast<int>(-sent);  // the helper sees the hang-up
      return;
    }
    if (sent < 0 && !is_passing({Errc::kSystem, static_cast<int>(-sent)})) {
      (void)report_unsendable_locked(static_cast<int>(-sent));
      return;
    }
    if (sent < 0) return await_room_locked(static_cast<int>(-sent));
    front_sent_bytes_ += static_cast<std::size_t>(sent);
    if (front_sent_bytes_ < front.bytes.size()) continue;
    if (front.records != 0) host_.count_sent(front.records);
    queued_bytes_ -= front.bytes.size();
    front_sent_bytes_ = 0;
    queue_.pop_front();
  }
  if (is_armed_ && fd_) {
    is_armed_ = !watch(host_.epoll(), fd_.get(), always_, &outgoing_, EPOLL_CTL_MOD).ok();
  }
}

Status QueuedPeer::report_unsendable_locked(int error) {
  const Status status(Errc::kSystem, error);
  host_.report_down(
      *this, {status, std::string("nothing can be sent to it (sendmsg): ") + std::strerror(error)});
  return status;
}

void QueuedPeer::await_room_locked(int error) {
  if (state_ == State::dialing) return;
  if (state_ == State::open && error == EAGAIN) {
    if (is_armed_) return;
    is_armed_ = watch(host_.epoll(), fd_.get(), EPOLLOUT | always_, &outgoing_, EPOLL_CTL_MOD).ok();
    if (is_armed_) return;
  }
  // the backlog is full, or memory or descriptors are short: epoll can't report the end of a
  // shortage
  if (!is_retrying_) {
    is_retrying_ = true;
    host_.retry_soon(*this);
  }
}

bool QueuedPeer::retry() {
  const std::lock_guard lock(mutex_);
  is_retrying_ = false;
  if (down_reason_ != Errc::kOk) return false;
  if (state_ == State::connecting) {
    const Status opened = reopen_locked();
    if (is_passing(opened)) return is_retrying_ = true;
    if (!opened.ok()) {
      host_.report_down(*this, {opened, "no connection to its address"});
      return false;
    }
  }
  flush_locked();
  return false;
}

void QueuedPeer::hang_up(Status reason) {
  const std::lock_guard lock(mutex_);
  down_reason_ = reason.code();
  down_error_ = reason.detail();
  close_connection_locked();
}

void QueuedPeer::shut(const Reason& reason) {
  const std::lock_guard lock(mutex_);
  down_reason_ = reason.status.code();
  down_error_ = reason.status.detail();
  down_text_ = reason.text;
  close_connection_locked();
  shut_locked();
  // release: pairs with is_down() acquire
  down_.store(true, std::memory_order_release);
}

void QueuedPeer::close_connection_locked() {
  if (fd_ && !identity_.is_at(fd_.get())) (void)fd_.release();
  if (fd_) unwatch(host_.epoll(), fd_.get());
  fd_.reset();
  queue_.clear();
  queued_bytes_ = 0;
  later_.clear();
  later_count_ = 0;
}

bool QueuedPeer::is_robbed() {
  const std::lock_guard lock(mutex_);
  return fd_ && !identity_.is_at(fd_.get());
}

std::size_t QueuedPeer::queued_count() {
  const std::lock_guard lock(mutex_);
  return queue_.size() + later_count_;
}

}  // namespace larklane::control
