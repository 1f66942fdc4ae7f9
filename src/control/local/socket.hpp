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

/// A socket name for bind, connect and sendto. Thread safety: immutable.
struct SocketName {
  sockaddr_un name{};
  socklen_t length;
  /// @param address  is_local_address()
  explicit SocketName(const Address& address) noexcept;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }
};

/// The process at the other end. After connect it is the process that called listen; after accept,
/// the process that called connect.
struct Credentials {
  pid_t pid = 0;  ///< 0 in a pid namespace that is not visible from here
  uid_t uid = 0;
};
Credentials peer_credentials(int socket) noexcept;
bool is_own_user(const Credentials& peer) noexcept;

/// True: the kernel names one process as the listener at `address` and as the opener of the
/// connection behind `socket`.
/// @errors those of connect_to
Result<bool> is_listener(const Address& address, int socket);

/// The process at the other end has ended. Makes a system call.
bool has_ended(int socket, const Credentials& peer) noexcept;

/// Begins to listen. Behind an inherited listener, peers see this process from now on. @errors
/// kSystem
Status listen_at(int socket) noexcept;

/// Closes a listener that no plane will serve. Later connections are refused, and connections in
/// its backlog end.
/// @return  the addresses of the processes that had connected; nothing: they can't be read
std::optional<std::vector<Address>> turn_away(Listener listener);

/// For each of these addresses: a process listens there, according to the kernel's list of the
/// network namespace. Nothing: the list can't be read.
std::optional<std::vector<bool>> are_bound(std::span<const Address> addresses);

/// A non-blocking connection to the process that listens at `address`.
/// @errors kUnreachable, kSystem; kSystem with EAGAIN: the backlog is full, retry later
Result<UniqueFd> connect_to(const Address& address);

/// A descriptor that becomes readable when the process at the other end ends. None for this
/// process, and where the kernel offers none: then hang-up alone shows the end.
/// @errors kPeerDown: the process has already ended
Result<UniqueFd> open_pidfd(int socket, const Credentials& peer);

/// Makes the message carry descriptors. @param space  CMSG_SPACE(fds.size_bytes()), for a cmsghdr
void attach_fds(msghdr& message, void* space, std::span<const int> fds) noexcept;

/// One sendmsg of up to three pieces of one record, after the `skip_bytes` that earlier calls have
/// sent. Never blocks, raises no SIGPIPE.
/// @return  bytes sent or -errno
ssize_t send_some(int socket, std::span<const std::span<const std::byte>> pieces,
                  std::size_t skip_bytes, std::span<const int> fds) noexcept;

/// One recvmsg. Appends the received descriptors to `fds`.
/// @param[out] fds_lost  the kernel could not deliver descriptors: too many, or no room in the
/// table of this process
/// @return  bytes received, 0 at the end, or -errno
ssize_t receive_some(int socket, std::span<std::byte> space, std::vector<UniqueFd>* fds,
                     bool* fds_lost);

}  // namespace larklane::control
