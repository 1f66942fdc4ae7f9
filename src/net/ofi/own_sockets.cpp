#include "net/ofi/own_sockets.hpp"

#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/unique_fd.hpp"

namespace larklane::ofi {
namespace {

/// Where the list of descriptors can't be had, because no descriptor is left.
constexpr int kNumbersTried = 1 << 16;

struct Name {
  std::array<unsigned char, 16> host{};
  std::uint16_t port = 0;
  friend bool operator==(const Name&, const Name&) = default;
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

std::vector<int> open_numbers() {
  std::vector<int> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string text = entry->path().filename();
    int number = -1;
    std::from_chars(text.data(), text.data() + text.size(), number);
    numbers.push_back(number);
  }
  if (error && numbers.empty())
    for (int number = 0; number < kNumbersTried; ++number) numbers.push_back(number);
  return numbers;
}

/// Of this process, at that name.
std::vector<int> sockets_at(const Name& name) {
  std::vector<int> found;
  for (const int number : open_numbers()) {
    const auto local = name_of(number, ::getsockname);
    if (local && *local == name) found.push_back(number);
  }
  return found;
}

bool is_listening(int socket) {
  int is = 0;
  socklen_t length = sizeof is;
  return ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &is, &length) == 0 && is != 0;
}

bool is_of_any(int socket, std::span<const sockaddr_storage> known) {
  const auto remote = name_of(socket, ::getpeername);
  // Without a peer's name it has ended already.
  return !remote || std::ranges::any_of(known, [&](const sockaddr_storage& each) {
    return name_of(each) == remote;
  });
}

/// Of a copy, if there is a descriptor for one: nothing else closes that, and takes its number for
/// another file, meanwhile.
template <class Act>
void with_copy(int number, Act&& act) {
  const UniqueFd copy(::dup(number));
  act(copy ? copy.get() : number);
}

}  // namespace

void end_listening(const sockaddr_storage& at) {
  const auto name = name_of(at);
  if (!name) return;
  for (const int number : sockets_at(*name))
    with_copy(number, [&](int socket) {
      if (name_of(socket, ::getsockname) == name && is_listening(socket))
        ::shutdown(socket, SHUT_RDWR);
    });
}

std::size_t end_strangers(const sockaddr_storage& at, std::span<const sockaddr_storage> known,
                          std::size_t at_least) {
  const auto name = name_of(at);
  if (!name) return 0;
  const auto is_stranger = [&](int socket) {
    return name_of(socket, ::getsockname) == name && !is_listening(socket) &&
           !is_of_any(socket, known);
  };
  std::vector<int> strangers = sockets_at(*name);
  std::erase_if(strangers, [&](int number) { return !is_stranger(number); });
  if (strangers.size() < at_least) return strangers.size();
  for (const int number : strangers)
    with_copy(number, [&](int socket) {
      if (is_stranger(socket)) ::shutdown(socket, SHUT_RDWR);
    });
  return strangers.size();
}

}  // namespace larklane::ofi
