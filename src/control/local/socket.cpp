#include "control/local/socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <unordered_set>

namespace larklane::control {
namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn, 4096 by default

#ifdef SO_PEERPIDFD
constexpr int kSoPeerPidfd = SO_PEERPIDFD;
#else
constexpr int kSoPeerPidfd = 77;  // asm-generic/socket.h, Linux 6.5
#endif

/// Room for the descriptors of one record.
union FdSpace {
  cmsghdr header;
  std::array<char, CMSG_SPACE(kRecordFdsMax * sizeof(int))> bytes;
};

/// A pidfd of the process at the other end; none: the kernel offers none. @errors kPeerDown: the
/// process has ended
Result<UniqueFd> peer_pidfd(int socket) noexcept {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &fd, &length) == 0) return UniqueFd(fd);
  // of a reaped process: ESRCH, before Linux 6.16 EINVAL
  if (errno == ESRCH || errno == EINVAL) return Errc::kPeerDown;
  return UniqueFd();
}

UniqueFd stream_socket() noexcept {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

SocketName::SocketName(const Address& address) noexcept
    : length(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size())) {
  static_assert(kAddressBytes < sizeof name.sun_path);
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, address.data(), address.size());
}

Result<Listener> Listener::bind(Address address) {
  if (!is_local_address(address)) return Errc::kInvalidArgument;
  UniqueFd fd = stream_socket();
  if (!fd) return Status(Errc::kSystem, errno);
  const SocketName name(address);
  if (::bind(fd.get(), name.get(), name.length) != 0) return Status(Errc::kSystem, errno);
  LARKLANE_TRY(listen_at(fd.get()));
  return Listener{std::move(address), std::move(fd)};
}

Status listen_at(int socket) noexcept {
  if (::listen(socket, kBacklog) != 0) return Status(Errc::kSystem, errno);
  return {};
}

Credentials peer_credentials(int socket) noexcept {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return {0, static_cast<uid_t>(-1)};
  }
  return {peer.pid, peer.uid};
}

bool is_own_user(const Credentials& peer) noexcept { return peer.uid == ::geteuid(); }

Result<UniqueFd> connect_to(const Address& address) {
  UniqueFd fd = stream_socket();
  if (!fd) return Status(Errc::kSystem, errno);
  const SocketName name(address);
  int result = 0;
  do {
    result = ::connect(fd.get(), name.get(), name.length);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return fd;
  // EPERM, EACCES: a security module separates the processes
  const bool is_unreachable = errno == ECONNREFUSED || errno == EPERM || errno == EACCES;
  return Status(is_unreachable ? Errc::kUnreachable : Errc::kSystem, errno);
}

std::optional<std::vector<bool>> are_bound(std::span<const Address> addresses) {
  std::ifstream list("/proc/self/net/unix");
  if (!list) return std::nullopt;
  std::unordered_set<std::string>
      names;  // an abstract one begins with @, as the last word of a line
  for (std::string line; std::getline(list, line);)
    if (const std::size_t at = line.rfind(" @"); at != std::string::npos)
      names.insert(line.substr(at + 2));
  std::vector<bool> bound;
  for (const Address& address : addresses) bound.push_back(names.contains(address));
  return bound;
}

Result<UniqueFd> open_pidfd(int socket, const Credentials& peer) {
  if (peer.pid == ::getpid()) return UniqueFd();
  // first choice: a reused process id can't mislead it, and it works across pid namespaces
  Result<UniqueFd> pidfd = peer_pidfd(socket);
  if (!pidfd) return pidfd.error();
  if (!*pidfd) {
    if (peer.pid == 0) return UniqueFd();
    pidfd->reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    if (!*pidfd && errno == ESRCH) return Errc::kPeerDown;
  }
  pollfd gone{pidfd->get(), POLLIN, 0};
  if (*pidfd && ::poll(&gone, 1, 0) == 1) return Errc::kPeerDown;
  return pidfd;
}

bool has_ended(int socket, const Credentials& peer) noexcept {
  return open_pidfd(socket, peer).error().code() == Errc::kPeerDown;
}

Result<bool> is_listener(const Address& address, int socket) {
  Result<UniqueFd> there = connect_to(address);
  if (!there) return there.error();
  const Credentials here = peer_credentials(socket), listens = peer_credentials(there->get());
  if (here.uid != listens.uid || here.pid != listens.pid) return false;
  // The ids are equal, or both 0: in a pid namespace that is not visible from here. Since Linux 6.9
  // a pidfd has an inode of its process alone, which then decides.
  Result<UniqueFd> one = peer_pidfd(socket), other = peer_pidfd(there->get());
  struct stat a {
  }, b{};
  if (!one || !other) return true;  // ended: the ids decide
  return ::fstat(one->get(), &a) != 0 || ::fstat(other->get(), &b) != 0 ||
         (a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

void attach_fds(msghdr& message, void* space, std::span<const int> fds) noexcept {
  message.msg_control = space;
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
}

ssize_t send_some(int socket, std::span<const std::span<const std::byte>> pieces,
                  std::size_t skip_bytes, std::span<const int> fds) noexcept {
  std::array<iovec, 3> vectors{};
  std::size_t count = 0;
  for (std::span<const std::byte> piece : pieces) {
    const std::size_t skipped = std::min(skip_bytes, piece.size());
    skip_bytes -= skipped;
    piece = piece.subspan(skipped);
    if (!piece.empty()) {
      vectors[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
    }
  }
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = count;
  FdSpace space{};
  if (!fds.empty()) {
    attach_fds(message, &space, fds);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? -errno : sent;
}

ssize_t receive_some(int socket, std::span<std::byte> space, std::vector<UniqueFd>* fds,
                     bool* fds_lost) {
  iovec vector{space.data(), space.size()};
  FdSpace fd_space{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = &fd_space;
  message.msg_controllen = sizeof fd_space;
  ssize_t received = 0;
  do {
    received = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return -errno;
  *fds_lost = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, kRecordFdsMax> numbers{};
    const std::size_t bytes = std::min(header->cmsg_len - CMSG_LEN(0), sizeof numbers);
    std::memcpy(numbers.data(), CMSG_DATA(header), bytes);
    for (std::size_t i = 0; i < bytes / sizeof(int); ++i) fds->emplace_back(numbers[i]);
  }
  return received;
}

}  // namespace larklane::control
