#pragma once
// Lower bounds of any message's cost, beside the ways of `latency`: a cache line between two cores,
// a TCP connection of its own.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "shared_memory.hpp"

namespace larklane::bench {

/// A message and a mark that one rank writes and the other reads. A message of up to 56 bytes
/// shares one line with its mark.
class LineMedium {
 public:
  LineMedium(int rank, std::size_t bytes) : memory_(2 * bytes), rank_(rank), bytes_(bytes) {}

  void send(std::span<const std::byte> message, std::uint64_t round) {
    std::memcpy(place(rank_), message.data(), message.size());
    memory_.line(rank_).words[0].store(round, std::memory_order_release);
  }
  void receive(std::span<std::byte> message, std::uint64_t round) {
    constexpr int kLooksBeforeYield = 1000;
    const std::atomic<std::uint64_t>& mark = memory_.line(1 - rank_).words[0];
    for (int looks = 0; mark.load(std::memory_order_acquire) != round; ++looks)
      if (looks > kLooksBeforeYield) sched_yield();
    std::memcpy(message.data(), place(1 - rank_), message.size());
  }

 private:
  void* place(int rank) {
    if (bytes_ <= sizeof(SharedLine) - 8) return &memory_.line(rank).words[1];
    return memory_.data() + static_cast<std::size_t>(rank) * bytes_;
  }

  SharedMemory memory_;
  const int rank_;
  const std::size_t bytes_;
};

/// From rank 0 to rank 1 on any hosts. Both poll, or the kernel wakes them.
class SocketMedium {
 public:
  SocketMedium(int rank, bool sleeps)
      : flags_(sleeps ? 0 : MSG_DONTWAIT), socket_(connected(rank == 1)) {}
  ~SocketMedium() { ::close(socket_); }
  SocketMedium(const SocketMedium&) = delete;
  SocketMedium& operator=(const SocketMedium&) = delete;

  void send(std::span<const std::byte> message) const {
    while (!message.empty()) {
      const ssize_t sent = ::send(socket_, message.data(), message.size(), flags_ | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) fail("send");
      message = message.subspan(sent > 0 ? static_cast<std::size_t>(sent) : 0);
    }
  }
  void receive(std::span<std::byte> message) const {
    while (!message.empty()) {
      const ssize_t got = ::recv(socket_, message.data(), message.size(), flags_);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) fail("recv");
      message = message.subspan(got > 0 ? static_cast<std::size_t>(got) : 0);
    }
  }

 private:
  [[noreturn]] static void fail(const char* what) {
    std::perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
  }

  /// The address of an interface other than the loopback if there is one.
  static sockaddr_in own_address() {
    sockaddr_in found{};
    found.sin_family = AF_INET;
    found.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) fail("getifaddrs");
    for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next)
      if (at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET &&
          (at->ifa_flags & IFF_LOOPBACK) == 0 && (at->ifa_flags & IFF_RUNNING) != 0)
        found.sin_addr = reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr;
    ::freeifaddrs(all);
    return found;
  }

  /// Collective.
  static int connected(bool listens) {
    int found = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = own_address();
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    if (listens && (::bind(found, generic, size) != 0 || ::listen(found, 1) != 0 ||
                    ::getsockname(found, generic, &size) != 0))
      fail("listen");
    MPI_Bcast(&address, sizeof address, MPI_BYTE, 1, MPI_COMM_WORLD);
    if (listens) {
      const int listener = found;
      found = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      ::close(listener);
    } else if (::connect(found, generic, size) != 0) {
      fail("connect");
    }
    const int on = 1;
    if (found < 0 || ::setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
      fail("TCP_NODELAY");
    return found;
  }

  const int flags_, socket_;
};

}  // namespace larklane::bench
