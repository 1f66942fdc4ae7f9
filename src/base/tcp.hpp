#pragma once
// System calls on TCP sockets. Thread safety: thread-safe. No socket from here reaches a forked
// child.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/address.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace larklane {

/// Every address of a host, by name or number. @param[out] problem  why there is none
std::vector<Endpoint> resolve(const std::string& host, const std::string& port,
                              std::string* problem);
/// A non-blocking socket that listens at the first of `places` that this host has.
/// @errors kSystem: EADDRINUSE, EADDRNOTAVAIL, ...
Result<UniqueFd> listen_at(const std::vector<Endpoint>& places);
std::uint16_t port_of(int socket) noexcept;

/// A non-blocking connection that is made, or being made: then it becomes writable. @errors kSystem
Result<UniqueFd> begin_connect(const Endpoint& to);
/// A non-blocking connection, once it is made. @errors kSystem; ETIMEDOUT: not by `deadline_ns`
Result<UniqueFd> connect_by(const Endpoint& to, std::uint64_t deadline_ns);
/// The result of begin_connect(): 0 or an errno. Takes the error away.
int socket_error(int socket) noexcept;
/// A connection that waits to be accepted. @errors kSystem with EAGAIN: there is none
Result<UniqueFd> accept_from(int listener);

/// Small records leave at once. A silence of `silence_ns`, in which not even the peer's kernel
/// answers a probe, ends the connection with ETIMEDOUT or EHOSTUNREACH.
void tune(int socket, std::uint64_t silence_ns) noexcept;
/// The address at the other end, by number; empty if it is gone.
std::string peer_host(int socket);
std::uint16_t peer_port(int socket) noexcept;

/// Waits for POLLIN or POLLOUT. @return false: not by `deadline_ns`
bool wait_by(int fd, short events, std::uint64_t deadline_ns) noexcept;

}  // namespace larklane
