#pragma once
// System calls on TCP sockets. Thread safety: thread-safe.

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace larklane::boot {

/// What connect and bind take. Thread safety: immutable.
struct SocketName {
  sockaddr_storage name{};
  socklen_t length = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }
};

/// Every address of a host, by name or number. @param[out] problem  why there is none
std::vector<SocketName> resolve(const std::string& host, const std::string& port,
                                std::string* problem);

/// A non-blocking socket that listens at the first of `names` that this host has.
/// @errors kSystem: EADDRINUSE, EADDRNOTAVAIL, ...
Result<UniqueFd> listen_at(const std::vector<SocketName>& names);
std::uint16_t port_of(int listener) noexcept;
/// A non-blocking connection, once it is made. @errors kSystem; ETIMEDOUT: not by `deadline_ns`
Result<UniqueFd> connect_by(const SocketName& to, std::uint64_t deadline_ns);
/// Small records leave at once; a host that is gone ends the connection after half a minute.
void tune(int socket) noexcept;
/// Waits for POLLIN or POLLOUT. @return false: not by `deadline_ns`
bool wait_by(int fd, short events, std::uint64_t deadline_ns) noexcept;

}  // namespace larklane::boot
