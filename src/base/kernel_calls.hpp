#pragma once
// The system calls that a process can't communicate without, each rehearsed on objects of its own:
// a filter (seccomp), a security module or an old kernel may refuse any of them. Thread safety:
// thread-safe.

#include <sys/types.h>

#include <optional>
#include <string>

namespace larklane {

/// A system call that was refused.
struct RefusedCall {
  const char* call;     ///< as in its manual page
  int error;            ///< errno
  const char* purpose;  ///< the use that fails without it

  /// "memfd_create: Operation not permitted (shared memory of a pair); remedy: ...", for people.
  std::string text() const;
};

/// Which calls are rehearsed: all processes use sockets and events, those that share memory also
/// use its calls.
enum class CallsFor { records, records_and_memory };

/// Make each call once. About 30 system calls and one page of memory; nothing of it stays.
/// @return the first that was refused; nothing: all work
std::optional<RefusedCall> rehearse_kernel_calls(CallsFor use);

/// The user's remedy for `error` of a system call.
const char* remedy_of(int error) noexcept;

/// accept4(2) with SOCK_NONBLOCK and SOCK_CLOEXEC, or accept(2) and fcntl(2) where accept4 is
/// refused. @return the socket, or -1 and errno
int accept_connection(int listener) noexcept;

/// Write zeros to [begin, end) of a file: unlike a store to a page that can't be had (SIGBUS),
/// write(2) returns the error. @return 0 or errno
int fill_with_zeros(int fd, off_t begin, off_t end) noexcept;

/// fallocate(2) of [begin, end), or zeros written where it is unsupported or refused.
/// @return 0 or errno; EINTR: a signal came, and nothing has changed
int allocate_file(int fd, off_t begin, off_t end) noexcept;

}  // namespace larklane
