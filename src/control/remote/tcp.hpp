#pragma once
// System calls on TCP sockets. Thread safety: thread-safe. No socket from here reaches a forked
// child.

#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "control/plane/address.hpp"

namespace larklane::control {

/// A non-blocking connection that is made, or being made: then it becomes writable. @errors kSystem
Result<UniqueFd> begin_connect(const Endpoint& to);
/// What has become of it: 0 or an errno. Takes the error away.
int socket_error(int socket) noexcept;
/// A connection that waits to be accepted. @errors kSystem with EAGAIN: there is none
Result<UniqueFd> accept_from(int listener);
/// Small records leave at once, and a peer from which nothing has come for `silence_ns`, not even
/// the kernel's answer to a probe, ends the connection with ETIMEDOUT or EHOSTUNREACH.
void tune(int socket, std::uint64_t silence_ns) noexcept;
/// Who is at the other end, by number; empty if it is gone.
std::string peer_host(int socket);
std::uint16_t peer_port(int socket) noexcept;

}  // namespace larklane::control
