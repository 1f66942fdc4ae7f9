#pragma once
// Copies between buffers: within a process, into and out of slots, and across processes by attach
// (process_vm_readv, process_vm_writev). Bytes of two buffers correspond by their packed offset:
// typemap order on either side.
//
// The kernel can't copy all memory that its owner can use. Attach reads and writes no memfd_secret
// memory, no device memory, and no page that the owner's SIGSEGV handler would open on access.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "base/typemap.hpp"

namespace larklane::shm {

/// A buffer of elements of one datatype. Thread safety: immutable.
struct Buffer {
  const Typemap* type = nullptr;
  std::uintptr_t address = 0;  ///< of element 0, in its own process
};

/// Packed bytes [offset, offset + length) of `from` into `slot`.
void pack(const Buffer& from, std::uint64_t offset, std::uint64_t length, std::byte* slot) noexcept;
/// The reverse.
void unpack(const Buffer& to, std::uint64_t offset, std::uint64_t length,
            const std::byte* slot) noexcept;
/// Between two buffers of this process.
void copy(const Buffer& from, const Buffer& to, std::uint64_t offset,
          std::uint64_t length) noexcept;

enum class Direction : std::uint8_t { read, write };  ///< seen from the caller: pull, push

/// Packed bytes [offset, offset + length).
struct Piece {
  std::uint64_t offset;
  std::uint64_t length;
};

/// Between a buffer of ours and one of the process of `thread`.
/// @param piece  the bytes to copy; on return the remainder: nothing, or the bytes after the one at
/// which the copy stopped
/// @errors kTransfer with errno: EPERM, ENOSYS: the kernel forbids it; ESRCH: the thread has ended;
/// EFAULT: memory on either side that the kernel can't copy; ENOMEM
Status attach_copy(Direction direction, pid_t thread, const Buffer& ours, const Buffer& theirs,
                   Piece& piece) noexcept;

/// As attach_copy() by `thread`, if that is one of `process`: the kernel may have given the number
/// of a helper that has ended to a thread of another process, from which nothing is copied. Bytes
/// read by a thread that ends meanwhile count as not read.
/// @errors also kTransfer with ESRCH: it is none of its threads
Status attach_copy(Direction direction, pid_t process, pid_t thread, const Buffer& ours,
                   const Buffer& theirs, Piece& piece) noexcept;

/// The same, of bytes of ours that a thread of the program copies itself: its SIGSEGV handler may
/// open memory that the kernel can't access. EFAULT then speaks of the other process's memory.
Status attach_copy_by_owner(Direction direction, pid_t process, pid_t thread, const Buffer& ours,
                            const Buffer& theirs, Piece& piece) noexcept;

/// Between two buffers of this process, by the kernel: memory that can't be accessed is an error
/// here, not a signal. If only a SIGSEGV handler opens it, the caller learns that it needs one.
/// @param piece  as of attach_copy() @errors kTransfer with errno: EFAULT; EMFILE: no descriptors
Status checked_copy(const Buffer& from, const Buffer& to, Piece& piece) noexcept;

/// Let every process of this user attach to this one, as without Yama: its ptrace_scope 1, Ubuntu's
/// default, lets only parents. Elsewhere without effect. MPI libraries that attach do the same.
void let_peers_attach() noexcept;

/// Does the kernel let us write into (read from) the process of `thread`? Nothing is written.
/// @errors kUnreachable: the kernel's reason; ESRCH: the thread has ended. Its process may live on:
/// only a pidfd or a socket says that it is dead
Status probe_attach(Direction direction, pid_t thread) noexcept;
inline bool attach_allowed(Direction direction, pid_t thread) noexcept {
  return probe_attach(direction, thread).ok();
}

/// The thread by which `process` can be attached to: its first, or, where that has ended, its
/// helper, which lives as long as the process's engine. `process` if neither is found.
pid_t attach_thread(pid_t process) noexcept;
/// By any of its threads: it may have no helper yet.
bool attach_allowed_to(Direction direction, pid_t process) noexcept;

}  // namespace larklane::shm
