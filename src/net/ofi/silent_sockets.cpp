#include "net/ofi/silent_sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "base/unique_fd.hpp"

namespace larklane::ofi {
namespace {

constexpr std::uint32_t kUnansweredMs = 2000;
constexpr int kProbeAfterS = 1, kProbes = 3;

struct Name {
  std::array<unsigned char, 16> host{};
  std::uint16_t port = 0;
};

std::optional<Name> name_of(const sockaddr_storage& from) {
  Name name;
  if (from.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &from, sizeof v6);
    std::memcpy(name.host.data(), &v6.sin6_addr, name.host.size());
    name.port = v6.sin6_port;
  } else if (from.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &from, sizeof v4);
    name.host[10] = name.host[11] = 0xff;  // as IPv6 writes it
    std::memcpy(&name.host[12], &v4.sin_addr, sizeof v4.sin_addr);
    name.port = v4.sin_port;
  } else {
    return std::nullopt;
  }
  return name;
}

using Ask = int (*)(int, sockaddr*, socklen_t*);
std::optional<Name> name_of(int socket, Ask ask) {
  sockaddr_storage space{};
  socklen_t length = sizeof space;
  if (ask(socket, reinterpret_cast<sockaddr*>(&space), &length) != 0) return std::nullopt;
  return name_of(space);
}

bool is_unanswered(int socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         info.tcpi_unacked > 0 && info.tcpi_last_ack_recv >= kUnansweredMs;
}

void end_if_silent(int socket) {
  if (is_unanswered(socket)) {
    ::shutdown(socket, SHUT_RDWR);
    return;
  }
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kProbeAfterS);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeAfterS);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kProbeAfterS * (kProbes + 1) * 1000);
}

}  // namespace

void end_silent_sockets(const sockaddr_storage& own, const sockaddr_storage& peer) {
  const auto own_name = name_of(own), peer_name = name_of(peer);
  if (!own_name || !peer_name) return;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string text = entry->path().filename();
    int number = -1;
    std::from_chars(text.data(), text.data() + text.size(), number);
    // A copy of another file would, when it is closed, end the process's locks on that.
    struct stat about {};
    if (::fstat(number, &about) != 0 || !S_ISSOCK(about.st_mode)) continue;
    // A copy: nobody else closes it, and takes its number for something else, meanwhile.
    const UniqueFd copy(::dup(number));
    if (!copy) continue;
    const auto remote = name_of(copy.get(), ::getpeername);
    if (!remote || remote->host != peer_name->host) continue;
    const auto local = name_of(copy.get(), ::getsockname);
    if (!local || (remote->port != peer_name->port && local->port != own_name->port)) continue;
    end_if_silent(copy.get());
  }
}

}  // namespace larklane::ofi
