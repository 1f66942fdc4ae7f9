#include "control/remote/remote_dial.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "base/tcp.hpp"

namespace larklane::control {
namespace {

constexpr const char* kRemedy =
    "; is there a firewall between the hosts? LARKLANE_CONTROL_INTERFACE names the interface to "
    "use, LARKLANE_CONTROL_CONNECT_NS the time to wait";

/// Redials after a challenge that identifies the peer. Together they take some ten seconds.
constexpr std::uint32_t kRedialsMax = 64;
constexpr std::uint64_t kRedialNsMin = 5'000'000, kRedialNsMax = 160'000'000;

bool is_shortage(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
         error == ENOSPC;
}

}  // namespace

RemoteDial::RemoteDial(const RemoteTerms& terms, const Address& to, int epoll, Source* source)
    : terms_(terms),
      to_(RemoteAddress::parse(to).value_or(RemoteAddress{})),
      address_(to),
      epoll_(epoll),
      source_(source) {}

RemoteDial::Step RemoteDial::begin() {
  if (total_deadline_ns_ == 0) total_deadline_ns_ = now_ns() + terms_.connect_ns;
  return try_next();
}

/// The remaining hosts share the remaining time.
RemoteDial::Step RemoteDial::try_next() {
  while (next_host_ < to_.hosts.size()) {
    Result<UniqueFd> fd = begin_connect(to_.endpoint(next_host_));
    Status status = fd ? control::watch(epoll_, fd->get(), EPOLLOUT, source_) : fd.error();
    if (!status.ok() && is_shortage(status.detail())) {
      status_ = status;
      return Step::later;
    }
    if (status.ok()) {
      tune(fd->get(), terms_.silence_ns);
      fd_ = std::move(*fd);
      phase_ = Phase::connecting;
      const std::uint64_t now = now_ns();
      const std::uint64_t left = total_deadline_ns_ > now ? total_deadline_ns_ - now : 0;
      deadline_ns_ = now + left / (to_.hosts.size() - next_host_);
      return Step::waiting;
    }
    if (fail_host(status.detail(), std::strerror(status.detail())) == Step::failed) break;
  }
  return fail({Errc::kUnreachable, status_.detail()}, kRemedy);
}

/// Goes on to the next host, if there is one. Takes fd_ out of the epoll set before it closes it.
RemoteDial::Step RemoteDial::fail_host(int error, const std::string& why) {
  stop();
  if (!text_.empty()) text_ += ", ";
  text_ += to_.hosts[next_host_] + " port " + std::to_string(to_.port) + ": " + why;
  status_ = Status(Errc::kUnreachable, error);
  ++next_host_;
  return next_host_ == to_.hosts.size() ? Step::failed : Step::waiting;
}

RemoteDial::Step RemoteDial::fail(Status status, const std::string& why) {
  stop();
  status_ = status;
  text_ += why;
  return Step::failed;
}

void RemoteDial::stop() noexcept {
  deadline_ns_ = 0;
  if (!fd_) return;
  control::unwatch(epoll_, fd_.get());
  fd_.reset();
}

/// The peer's listener had more unproven connections than it keeps, and this one was the oldest.
RemoteDial::Step RemoteDial::redial() {
  stop();
  const std::uint64_t pause_ns = std::min(kRedialNsMin << std::min(redials_, 5u), kRedialNsMax);
  ++redials_;
  phase_ = Phase::pausing;
  deadline_ns_ = now_ns() + pause_ns;
  total_deadline_ns_ = deadline_ns_ + terms_.connect_ns;
  return Step::waiting;
}

RemoteDial::Step RemoteDial::on_time(std::uint64_t now) {
  if (deadline_ns_ == 0 || now < deadline_ns_) return Step::waiting;
  if (phase_ == Phase::pausing) return try_next();
  fail_host(ETIMEDOUT, "no answer");
  return try_next();
}

RemoteDial::Step RemoteDial::on_event(std::uint32_t events) {
  if (!fd_) return Step::waiting;
  if (phase_ != Phase::connecting) return on_bytes();
  const int error = socket_error(fd_.get());
  if (error != 0) {
    fail_host(error, std::strerror(error));
    return try_next();
  }
  return (events & EPOLLOUT) != 0 ? on_connected() : Step::waiting;
}

/// A process listens there. From now on it has no deadline, since it may not have a helper yet.
RemoteDial::Step RemoteDial::on_connected() {
  deadline_ns_ = 0;
  received_bytes_ = 0;
  phase_ = Phase::challenge;
  const Status status =
      control::watch(epoll_, fd_.get(), EPOLLIN | EPOLLRDHUP, source_, EPOLL_CTL_MOD);
  if (status.ok()) return Step::waiting;
  fail_host(status.detail(), std::strerror(status.detail()));
  return try_next();
}

bool RemoteDial::receive(std::span<std::byte> wanted, Step* step) {
  ssize_t got = 0;
  do {
    got = ::recv(fd_.get(), wanted.data() + received_bytes_, wanted.size() - received_bytes_,
                 MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  *step = Step::waiting;
  if (got < 0 && (errno == EAGAIN || is_shortage(errno))) return false;
  if (got <= 0 && phase_ == Phase::answer && redials_ < kRedialsMax) {
    *step = redial();
    return false;
  }
  if (got <= 0) {
    const std::string why = got < 0 ? std::strerror(errno) : "it has closed the connection";
    fail_host(got < 0 ? errno : ECONNRESET, why + " before it had proven itself");
    *step = try_next();
    return false;
  }
  received_bytes_ += static_cast<std::size_t>(got);
  if (received_bytes_ < wanted.size()) return false;
  received_bytes_ = 0;
  return true;
}

RemoteDial::Step RemoteDial::on_bytes() {
  Step step = Step::waiting;
  if (phase_ == Phase::challenge) {
    return receive(std::as_writable_bytes(std::span(&challenge_, 1)), &step) ? on_challenge()
                                                                             : step;
  }
  return receive(std::as_writable_bytes(std::span(&answer_, 1)), &step) ? on_answer() : step;
}

RemoteDial::Step RemoteDial::on_challenge() {
  if (challenge_.magic != kWireMagic) {
    fail_host(EPROTO, "something else listens there");
    return try_next();
  }
  if (challenge_.version != kProtocolVersion) {
    return fail(Errc::kVersion,
                to_.hosts[next_host_] + " speaks version " + std::to_string(challenge_.version) +
                    " of the control protocol, this process " + std::to_string(kProtocolVersion) +
                    ": another Larklane is installed there");
  }
  if (challenge_.identity != identity_of(terms_.secret, address_)) {
    fail_host(EACCES, "another process listens there, or one that has another job's secret");
    return try_next();
  }
  hello_.life = terms_.life;
  hello_.pid = ::getpid();
  hello_.address_bytes = static_cast<std::uint32_t>(terms_.own.size());
  std::memcpy(hello_.address.data(), terms_.own.data(), terms_.own.size());
  if (const Status random = fill_random(std::as_writable_bytes(std::span(hello_.nonce)));
      !random.ok())
    return fail(random, "no random numbers");
  hello_.proof = proof_of(terms_.secret, challenge_, hello_);
  // the first bytes on this connection: the smallest socket buffer has room for them
  if (::send(fd_.get(), &hello_, sizeof hello_, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(sizeof hello_)) {
    fail_host(ECONNRESET, "the connection ended before this process had introduced itself");
    return try_next();
  }
  phase_ = Phase::answer;
  return Step::waiting;
}

RemoteDial::Step RemoteDial::on_answer() {
  if (answer_.magic != kWireMagic || answer_.zero != 0 ||
      answer_.proof != answer_to(terms_.secret, challenge_, hello_)) {
    fail_host(EACCES, "who listens there has not proven that it belongs to this job");
    return try_next();
  }
  return Step::open;
}

}  // namespace larklane::control
