#pragma once
// Opens pages that only a signal handler of the program can open: in a thread of the program that
// is in no call of this library (ADR 0031).

#include <sys/types.h>

#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "shm/copy.hpp"

namespace larklane::shm {

enum class Access : std::uint8_t { read, write };

/// Interrupts one of `threads`, the first that takes the signal: SIGURG if the program does not
/// handle it, else a free real-time signal. The handler accesses every page of `piece`.
/// The program's SIGSEGV handler runs as for an access of its own; without one the process ends by
/// that signal. Bytes keep their values. Calls that restart do so (SA_RESTART); a sleep of that
/// thread ends early. A thread that blocks SIGSEGV or SIGBUS is left alone.
/// @param threads  they use MPI themselves. A thread that serves page faults would wait for itself
/// Thread safety: thread-safe; not on one of `threads`.
/// @errors kNoThread: none took the signal; kSystem with EBUSY: no signal is free
Status touch_by_program(std::span<const pid_t> threads, const Buffer& buffer, const Piece& piece,
                        Access access) noexcept;

}  // namespace larklane::shm
