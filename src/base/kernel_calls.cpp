#include "base/kernel_calls.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/unique_fd.hpp"

namespace larklane {
namespace {

constexpr long kPageBytes = 4096;

/// Objects that earlier calls of the rehearsal have made for later ones. Thread safety:
/// single-owner.
struct Stage {
  UniqueFd memory, listener, out, in, passed, epoll, bell, timer;
};

int result_of(long value) noexcept { return value < 0 ? errno : 0; }

int try_getrandom(Stage&) {
  std::array<std::byte, 8> bytes{};
  return result_of(::getrandom(bytes.data(), bytes.size(), 0));
}

int try_memfd(Stage& stage) {
  stage.memory.reset(::memfd_create("larklane", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  return result_of(stage.memory.get());
}

int try_allocate(Stage& stage) { return allocate_file(stage.memory.get(), 0, kPageBytes); }

int try_seals(Stage& stage) {
  return result_of(
      ::fcntl(stage.memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
}

int try_mmap(Stage& stage) {
  void* const page =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, stage.memory.get(), 0);
  if (page == MAP_FAILED) return errno;
  ::munmap(page, kPageBytes);
  return 0;
}

int try_socket(Stage& stage) {
  for (UniqueFd* const fd : {&stage.listener, &stage.out}) {
    fd->reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!*fd) return errno;
  }
  return 0;
}

int try_bind(Stage& stage) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // With no name at all the kernel chooses an abstract one.
  return result_of(::bind(stage.listener.get(), reinterpret_cast<const sockaddr*>(&name),
                          sizeof name.sun_family));
}

int try_listen(Stage& stage) { return result_of(::listen(stage.listener.get(), 1)); }

int try_connect(Stage& stage) {
  sockaddr_un name{};
  socklen_t length = sizeof name;
  auto* const address = reinterpret_cast<sockaddr*>(&name);
  if (::getsockname(stage.listener.get(), address, &length) != 0) return errno;
  return result_of(::connect(stage.out.get(), address, length));
}

int try_accept(Stage& stage) {
  stage.in.reset(accept_connection(stage.listener.get()));
  return result_of(stage.in.get());
}

int try_credentials(Stage& stage) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return result_of(::getsockopt(stage.in.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length));
}

/// One byte and one descriptor.
struct Parcel {
  explicit Parcel() noexcept {
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = space.data();
    message.msg_controllen = space.size();
  }
  std::byte byte{};
  iovec vector{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
};

int try_sendmsg(Stage& stage) {
  Parcel parcel;
  cmsghdr* const header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = stage.listener.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return result_of(::sendmsg(stage.out.get(), &parcel.message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

int try_recvmsg(Stage& stage) {
  Parcel parcel;
  if (::recvmsg(stage.in.get(), &parcel.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) return errno;
  const cmsghdr* const header = CMSG_FIRSTHDR(&parcel.message);
  // Descriptors are short here, or a security module has taken this one away.
  if (header == nullptr) return (parcel.message.msg_flags & MSG_CTRUNC) != 0 ? EMFILE : EPERM;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  stage.passed.reset(fd);
  return 0;
}

int try_dup(Stage& stage) {
  return result_of(UniqueFd(::fcntl(stage.listener.get(), F_DUPFD_CLOEXEC, 0)).get());
}

int try_epoll_create(Stage& stage) {
  stage.epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  return result_of(stage.epoll.get());
}

int try_eventfd(Stage& stage) {
  stage.bell.reset(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  return result_of(stage.bell.get());
}

int try_timer(Stage& stage) {
  stage.timer.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!stage.timer) return errno;
  const itimerspec never{};
  return result_of(::timerfd_settime(stage.timer.get(), 0, &never, nullptr));
}

int try_epoll_ctl(Stage& stage) {
  epoll_event event{};
  event.events = EPOLLIN;
  return result_of(::epoll_ctl(stage.epoll.get(), EPOLL_CTL_ADD, stage.bell.get(), &event));
}

int try_epoll_wait(Stage& stage) {
  epoll_event event{};
  const int count = ::epoll_wait(stage.epoll.get(), &event, 1, 0);
  return count < 0 && errno != EINTR ? errno : 0;
}

/// No thread is made: to arguments that make no sense the kernel answers EINVAL, a filter its usual
/// errno. Where clone3 does not exist (ENOSYS), the C library takes clone, which has no such
/// arguments that every emulation of the kernel stands: the helper's start finds that out.
int try_clone(Stage&) {
#ifdef SYS_clone3
  if (::syscall(SYS_clone3, nullptr, std::size_t{0}) < 0 && errno != ENOSYS && errno != EINVAL)
    return errno;
#endif
  return 0;
}

struct Call {
  const char* name;
  CallsFor use;
  int (*try_it)(Stage&);
  const char* purpose;
};
constexpr auto kBoth = CallsFor::records;
constexpr auto kMemory = CallsFor::records_and_memory;

/// Each call stands behind those that make its arguments. Calls that have a substitute are not
/// here: process_vm_readv and process_vm_writev (slots), pidfd_open (hang-up of the socket),
/// membarrier (a lock), epoll_pwait2 (epoll_wait), prctl, sched_setaffinity, setpriority (as it
/// is).
constexpr Call kCalls[] = {
    {"getrandom", kBoth, try_getrandom, "numbers that tell processes apart"},
    {"memfd_create", kMemory, try_memfd, "shared memory of a pair"},
    {"fallocate, pwrite", kMemory, try_allocate, "room for shared memory"},
    {"fcntl(F_ADD_SEALS)", kMemory, try_seals, "shared memory that keeps its size"},
    {"mmap(MAP_SHARED)", kMemory, try_mmap, "shared memory of a pair"},
    {"socket(AF_UNIX)", kBoth, try_socket, "records between processes of a host"},
    {"bind", kBoth, try_bind, "a name by which peers reach this process"},
    {"listen", kBoth, try_listen, "connections of peers"},
    {"connect", kBoth, try_connect, "connections to peers"},
    {"accept4, accept", kBoth, try_accept, "connections of peers"},
    {"getsockopt(SO_PEERCRED)", kBoth, try_credentials, "refusal of other users"},
    {"sendmsg(SCM_RIGHTS)", kBoth, try_sendmsg, "records and memory for peers"},
    {"recvmsg(SCM_RIGHTS)", kBoth, try_recvmsg, "records and memory of peers"},
    {"fcntl(F_DUPFD_CLOEXEC)", kBoth, try_dup, "descriptors of queued records"},
    {"epoll_create1", kBoth, try_epoll_create, "sleep of the helper thread"},
    {"eventfd2", kBoth, try_eventfd, "wake-up of the helper thread"},
    {"timerfd_create, timerfd_settime", kBoth, try_timer, "records that leave together"},
    {"epoll_ctl", kBoth, try_epoll_ctl, "sleep of the helper thread"},
    {"epoll_wait", kBoth, try_epoll_wait, "sleep of the helper thread"},
    {"clone3, clone", kBoth, try_clone, "the helper thread"},
};

bool is_refusal(int error) noexcept {
  return error == ENOSYS || error == EPERM || error == EACCES || error == EOPNOTSUPP;
}

}  // namespace

std::string RefusedCall::text() const {
  return std::string(call) + ": " + std::strerror(error) + " (" + purpose +
         "); remedy: " + remedy_of(error);
}

std::optional<RefusedCall> rehearse_kernel_calls(CallsFor use) {
  Stage stage;
  for (const Call& call : kCalls) {
    if (call.use == kMemory && use != kMemory) continue;
    int error = 0;
    do {
      error = call.try_it(stage);
    } while (error == EINTR);
    if (error != 0) return RefusedCall{call.name, error, call.purpose};
  }
  return std::nullopt;
}

const char* remedy_of(int error) noexcept {
  switch (error) {
    case EPERM:
    case EACCES:
    case ENOSYS:
    case EOPNOTSUPP:
      return "let the container's or sandbox's filter allow it (docker: --security-opt "
             "seccomp=PROFILE), or take a newer kernel";
    case EMFILE:
      return "raise the limit of open files (ulimit -n)";
    case ENFILE:
      return "raise the machine's limit of open files (sysctl fs.file-max)";
    case ENOMEM:
    case ENOSPC:
    case ENOBUFS:
      return "leave the job more memory";
    case EFBIG:
      return "raise the limit of file sizes (ulimit -f)";
    case EAGAIN:
      return "raise the limit of processes and threads (ulimit -u, the control group's pids.max)";
    default:
      return "see the call's manual page for this error";
  }
}

int accept_connection(int listener) noexcept {
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0 || !is_refusal(errno)) return fd;
  UniqueFd plain(::accept(listener, nullptr, nullptr));
  if (!plain) return -1;
  const int flags = ::fcntl(plain.get(), F_GETFL);
  if (flags < 0 || ::fcntl(plain.get(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(plain.get(), F_SETFD, FD_CLOEXEC) != 0)
    return -1;
  return plain.release();
}

int fill_with_zeros(int fd, off_t begin, off_t end) noexcept {
  static constexpr std::array<std::byte, std::size_t{1} << 16> kZeros{};
  while (begin < end) {
    const auto length = std::min(static_cast<std::size_t>(end - begin), kZeros.size());
    const ssize_t written = ::pwrite(fd, kZeros.data(), length, begin);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    begin += written;
  }
  return 0;
}

int allocate_file(int fd, off_t begin, off_t end) noexcept {
  // Not posix_fallocate: its substitute writes a byte a page, and only after EOPNOTSUPP.
  if (::fallocate(fd, 0, begin, end - begin) == 0) return 0;
  return is_refusal(errno) ? fill_with_zeros(fd, begin, end) : errno;
}

}  // namespace larklane
