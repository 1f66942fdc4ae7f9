#pragma once
// Copies between buffers: within a process, into and out of slots, and across processes by attach
// (process_vm_readv, process_vm_writev). Bytes of two buffers correspond by their packed offset:
// typemap order on either side.

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

/// Between a buffer of ours and one of process `pid`. Returns when all bytes have been copied.
/// @errors kTransfer with errno: EPERM, ENOSYS: the kernel forbids it; ESRCH: the process is gone;
/// EFAULT: not its memory
Status attach_copy(Direction direction, pid_t pid, const Buffer& ours, const Buffer& theirs,
                   std::uint64_t offset, std::uint64_t length) noexcept;

/// Let every process of this user attach to this one, as without Yama: its ptrace_scope 1, Ubuntu's
/// default, lets only parents. Elsewhere without effect. MPI libraries that attach do the same.
void let_peers_attach() noexcept;

/// Does the kernel let us write into (read from) process `pid`? Nothing is written.
/// @errors kPeerDown: it has no memory any more; kUnreachable: the kernel's reason
Status probe_attach(Direction direction, pid_t pid) noexcept;
inline bool attach_allowed(Direction direction, pid_t pid) noexcept {
  return probe_attach(direction, pid).ok();
}

}  // namespace larklane::shm
