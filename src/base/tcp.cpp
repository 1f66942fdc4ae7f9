#include "base/tcp.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/clock.hpp"
#include "base/fork_guard.hpp"
#include "base/kernel_calls.hpp"

namespace larklane {
namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn, 4096 by default

void set_option(int socket, int level, int name, int value) noexcept {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

/// accept also reports the end of the connection that it would have given.
bool concerns_one_connection(int error) noexcept {
  return error == EINTR || error == ECONNABORTED || error == ENETDOWN || error == EPROTO ||
         error == ENOPROTOOPT || error == EHOSTDOWN || error == ENONET || error == EHOSTUNREACH ||
         error == ENETUNREACH;
}

Result<UniqueFd> stream_socket(const Endpoint& place) {
  const int family = place.get()->sa_family;
  UniqueFd fd = keep_from_children(
      [&] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP); });
  if (!fd) return Status(Errc::kSystem, errno);
  return fd;
}

std::uint16_t port_in(const sockaddr_storage& name) noexcept {
  sockaddr_in6 v6;  // the port lies in the same place in both families
  static_assert(offsetof(sockaddr_in6, sin6_port) == offsetof(sockaddr_in, sin_port));
  std::memcpy(&v6, &name, sizeof v6);
  return ntohs(v6.sin6_port);
}

Result<UniqueFd> listen_at_one(const Endpoint& place) {
  auto fd = stream_socket(place);
  if (!fd) return fd;
  // An earlier job's connections may linger at a port that is chosen.
  if (port_in(place.name) != 0) set_option(fd->get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (place.get()->sa_family == AF_INET6) set_option(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd->get(), place.get(), place.length) != 0 || ::listen(fd->get(), kBacklog) != 0)
    return Status(Errc::kSystem, errno);
  return fd;
}

}  // namespace

std::vector<Endpoint> resolve(const std::string& host, const std::string& port,
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
  std::vector<Endpoint> places;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Endpoint place;
    std::memcpy(&place.name, one->ai_addr, one->ai_addrlen);
    place.length = one->ai_addrlen;
    places.push_back(place);
  }
  ::freeaddrinfo(found);
  return places;
}

Result<UniqueFd> listen_at(const std::vector<Endpoint>& places) {
  Status first = Errc::kInvalidArgument;
  for (const Endpoint& place : places) {
    auto listener = listen_at_one(place);
    // A process is at the address already: then it is where all meet.
    if (listener || listener.error().detail() == EADDRINUSE) return listener;
    if (first.code() == Errc::kInvalidArgument) first = listener.error();
  }
  return first;
}

std::uint16_t port_of(int socket) noexcept {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &length) == 0 ? port_in(name)
                                                                                 : 0;
}

Result<UniqueFd> begin_connect(const Endpoint& to) {
  auto fd = stream_socket(to);
  if (!fd) return fd;
  // EINTR: it goes on in the background, as with EINPROGRESS
  if (::connect(fd->get(), to.get(), to.length) != 0 && errno != EINPROGRESS && errno != EINTR)
    return Status(Errc::kSystem, errno);
  return fd;
}

Result<UniqueFd> connect_by(const Endpoint& to, std::uint64_t deadline_ns) {
  auto fd = begin_connect(to);
  if (!fd) return fd;
  if (!wait_by(fd->get(), POLLOUT, deadline_ns)) return Status(Errc::kSystem, ETIMEDOUT);
  if (const int error = socket_error(fd->get()); error != 0) return Status(Errc::kSystem, error);
  return fd;
}

int socket_error(int socket) noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

Result<UniqueFd> accept_from(int listener) {
  for (;;) {
    UniqueFd fd = keep_from_children([&] { return accept_connection(listener); });
    if (fd) return fd;
    if (!concerns_one_connection(errno)) return Status(Errc::kSystem, errno);
  }
}

void tune(int socket, std::uint64_t silence_ns) noexcept {
  const int silence_ms =
      static_cast<int>(std::min<std::uint64_t>(silence_ns / 1'000'000, std::uint64_t{1} << 30));
  const int silence_s = silence_ms / 1000;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, silence_ms);  // data, and probes, unanswered
  // idle: four probes in the second half of the time, seconds being the kernel's unit
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::clamp(silence_s / 2, 1, 32767));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::clamp(silence_s / 8, 1, 32767));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
}

std::string peer_host(int socket) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &length) != 0) return {};
  return host_text(reinterpret_cast<const sockaddr*>(&name));
}

std::uint16_t peer_port(int socket) noexcept {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &length) == 0 ? port_in(name)
                                                                                 : 0;
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

}  // namespace larklane
