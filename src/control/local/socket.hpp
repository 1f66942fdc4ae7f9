#pragma once
// System calls on abstract unix sockets and pidfds. Thread safety: thread-safe.

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "control/plane/plane.hpp"

namespace larklane::control {

/// What bind, connect and sendto take. Thread safety: immutable.
struct SocketName {
  sockaddr_un name{};
  socklen_t length;
  /// @param address  is_local_address()
  explicit SocketName(const Address& address) noexcept;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }
};

/// The process at the other end: who called listen (seen from connect) or connect (seen from
/// accept).
struct Credentials {
  pid_t pid = 0;  ///< 0 in a pid namespace that we can't see
  uid_t uid = 0;
};
Credentials peer_credentials(int socket) noexcept;
bool is_own_user(const Credentials& peer) noexcept;

/// The process that listens at `address` is the one that has opened the connection behind `socket`,
/// as the kernel names them.
/// @errors those of connect_to
Result<bool> is_listener(const Address& address, int socket);

/// The process at the other end has ended. A system call.
bool has_ended(int socket, const Credentials& peer) noexcept;

/// Begin to listen, or make this process the one that peers see behind a listener that it has
/// inherited. @errors kSystem
Status listen_at(int socket) noexcept;

/// Close a listener that no plane will serve: later connections are refused, and those that wait in
/// its backlog end.
/// @return  the addresses of the processes that had connected; nothing: they can't be read
std::optional<std::vector<Address>> turn_away(Listener listener);

/// For each of these addresses: a process listens there, as the kernel's list of the network
/// namespace says. Nothing: the list can't be read.
std::optional<std::vector<bool>> are_bound(std::span<const Address> addresses);

/// A non-blocking connection to whoever listens at `address`.
/// @errors kUnreachable, kSystem; kSystem with EAGAIN: the backlog is full, try again later
Result<UniqueFd> connect_to(const Address& address);

/// A descriptor that becomes readable when the process at the other end is gone; none for the own
/// process and where the kernel offers none (then hang-up remains).
/// @errors kPeerDown: the process is gone already
Result<UniqueFd> open_pidfd(int socket, const Credentials& peer);

/// One sendmsg of up to three pieces of one record, `skip_bytes` of which have been sent before.
/// Never blocks, no SIGPIPE.
/// @return  bytes sent or -errno
ssize_t send_some(int socket, std::span<const std::span<const std::byte>> pieces,
                  std::size_t skip_bytes, std::span<const int> fds) noexcept;

/// One recvmsg. Descriptors that come along are appended to `fds`.
/// @param[out] fds_lost  descriptors were sent that could not be taken (too many, or no room in our
/// table)
/// @return  bytes received, 0 at the end, or -errno
ssize_t receive_some(int socket, std::span<std::byte> space, std::vector<UniqueFd>* fds,
                     bool* fds_lost);

}  // namespace larklane::control
