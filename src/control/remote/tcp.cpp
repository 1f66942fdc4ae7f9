#include "control/remote/tcp.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/kernel_calls.hpp"
#include "control/remote/fork_guard.hpp"

namespace larklane::control {
namespace {

void set_option(int socket, int level, int name, int value) noexcept {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

/// accept also reports what has happened to the connection that it would have given.
bool concerns_one_connection(int error) noexcept {
  return error == EINTR || error == ECONNABORTED || error == ENETDOWN || error == EPROTO ||
         error == ENOPROTOOPT || error == EHOSTDOWN || error == ENONET || error == EHOSTUNREACH ||
         error == ENETUNREACH;
}

}  // namespace

Result<UniqueFd> begin_connect(const Endpoint& to) {
  const int family = to.get()->sa_family;
  UniqueFd fd = keep_from_children(
      [&] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP); });
  if (!fd) return Status(Errc::kSystem, errno);
  // EINTR: it goes on in the background, as with EINPROGRESS
  if (::connect(fd.get(), to.get(), to.length) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return Status(Errc::kSystem, errno);
  }
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
  sockaddr_in6 name{};  // the port lies in the same place in both families
  static_assert(offsetof(sockaddr_in6, sin6_port) == offsetof(sockaddr_in, sin_port));
  socklen_t length = sizeof name;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &length) != 0) return 0;
  return ntohs(name.sin6_port);
}

}  // namespace larklane::control
