#pragma once
// Registering memory that forked processes keep.

#include <cstdint>

#include "net/verbs/handles.hpp"

namespace larklane::verbs {

/// ibv_reg_mr(). Once somebody in the process has called ibv_fork_init(), as UCX does, that takes
/// whole pages from processes that are forked later, and with them what else lies there: the frame
/// of a caller, say. Where the kernel gives these copies of what is registered (Linux 5.12), they
/// get the pages back.
/// @return none: errno says why. Thread safety: thread-safe.
Registration register_range(ibv_pd* domain, void* start, std::uint64_t bytes, int access) noexcept;

}  // namespace larklane::verbs
