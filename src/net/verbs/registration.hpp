#pragma once
// Registering memory that forked processes keep.

#include <cstdint>

#include "net/verbs/handles.hpp"

namespace larklane::verbs {

/// ibv_reg_mr(). After any code in the process has called ibv_fork_init(), as UCX does, it takes
/// whole pages from processes that are forked later. rdma-core 44 does; later versions need not.
/// With them go other bytes that lie there: the frame of a caller, say. Where the kernel gives
/// these processes copies of registered memory (Linux 5.12), they get the pages back. A fork takes
/// longer for it, and memory.
/// @return none: errno says why. Thread safety: thread-safe.
Registration register_range(ibv_pd* domain, void* start, std::uint64_t bytes, int access) noexcept;

}  // namespace larklane::verbs
