#include "bootstrap/tcp.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/clock.hpp"

namespace larklane::boot {
namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn, 4096 by default
constexpr int kSilenceS = 30;   // as option control_silence_ns

UniqueFd stream_socket(const SocketName& name) noexcept {
  return UniqueFd(
      ::socket(name.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

void set_option(int socket, int level, int name, int value) noexcept {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

Result<UniqueFd> listen_at_one(const SocketName& name) {
  UniqueFd fd = stream_socket(name);
  if (!fd) return Status(Errc::kSystem, errno);
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // an earlier job's connections may linger
  if (::bind(fd.get(), name.get(), name.length) != 0 || ::listen(fd.get(), kBacklog) != 0)
    return Status(Errc::kSystem, errno);
  return fd;
}

}  // namespace

std::vector<SocketName> resolve(const std::string& host, const std::string& port,
                                std::string* problem) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    *problem = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
    return {};
  }
  std::vector<SocketName> names;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketName name;
    std::memcpy(&name.name, one->ai_addr, one->ai_addrlen);
    name.length = one->ai_addrlen;
    names.push_back(name);
  }
  ::freeaddrinfo(found);
  return names;
}

Result<UniqueFd> listen_at(const std::vector<SocketName>& names) {
  Status first = Errc::kInvalidArgument;
  for (const SocketName& name : names) {
    auto listener = listen_at_one(name);
    // Somebody is at the address already: then it is where all meet.
    if (listener || listener.error().detail() == EADDRINUSE) return listener;
    if (first.code() == Errc::kInvalidArgument) first = listener.error();
  }
  return first;
}

std::uint16_t port_of(int listener) noexcept {
  sockaddr_in6 name{};  // the port lies in the same place in both families
  static_assert(offsetof(sockaddr_in6, sin6_port) == offsetof(sockaddr_in, sin_port));
  socklen_t length = sizeof name;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&name), &length) != 0) return 0;
  return ntohs(name.sin6_port);
}

Result<UniqueFd> connect_by(const SocketName& to, std::uint64_t deadline_ns) {
  UniqueFd fd = stream_socket(to);
  if (!fd) return Status(Errc::kSystem, errno);
  // EINTR: it goes on in the background, as with EINPROGRESS
  if (::connect(fd.get(), to.get(), to.length) != 0 && errno != EINPROGRESS && errno != EINTR)
    return Status(Errc::kSystem, errno);
  if (!wait_by(fd.get(), POLLOUT, deadline_ns)) return Status(Errc::kSystem, ETIMEDOUT);
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return Status(Errc::kSystem, error);
  return fd;
}

void tune(int socket) noexcept {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kSilenceS * 1000);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kSilenceS / 2);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kSilenceS / 8);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
}

bool wait_by(int fd, short events, std::uint64_t deadline_ns) noexcept {
  for (;;) {
    const std::uint64_t now = now_ns();
    const std::uint64_t left_ms = now < deadline_ns ? (deadline_ns - now + 999'999) / 1'000'000 : 0;
    pollfd polled{fd, events, 0};
    const int count =
        ::poll(&polled, 1, static_cast<int>(std::min<std::uint64_t>(left_ms, 1'000'000)));
    if (count > 0) return true;
    if (count == 0 && now_ns() >= deadline_ns) return false;
    if (count < 0 && errno != EINTR) return false;
  }
}

}  // namespace larklane::boot
