#pragma once
// The objects that epoll events point to. Thread safety: immutable; the functions are thread-safe.

#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>

#include "base/status.hpp"

namespace larklane::control {

enum class SourceKind : std::uint8_t {
  listener,
  bell,
  timer,
  incoming,
  outgoing,
  process,
  watched
};

/// Outlives its registration. Its object stays until the helper has finished its batch of events.
struct Source {
  SourceKind kind;
  void* object;  ///< Incoming, QueuedPeer (outgoing), LocalPeer (process), or the owner of a
                 ///< listener or watched; null for the bell and the timer
};

inline Status watch(int epoll, int fd, std::uint32_t events, Source* source,
                    int operation = EPOLL_CTL_ADD) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = source;
  if (::epoll_ctl(epoll, operation, fd, &event) != 0) return Status(Errc::kSystem, errno);
  return {};
}

/// Comes before closing `fd`: a forked child that holds a copy would keep the registration alive.
inline void unwatch(int epoll, int fd) noexcept { ::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr); }

}  // namespace larklane::control
