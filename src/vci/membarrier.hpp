#pragma once
// A fence on all threads of the process, made by one of them: so that the others need none.
// (membarrier(2), MEMBARRIER_CMD_PRIVATE_EXPEDITED)

#include <atomic>
#include <cstdint>

namespace larklane::vci {

/// False: this kernel has no such call, or forbids it. Thread safety: thread-safe.
bool can_fence_all() noexcept;
/// Ends the process if the kernel does not allow it any more. Thread safety: thread-safe.
/// @pre can_fence_all()
void fence_all() noexcept;

/// Between a store and a load that another thread's fence_all() orders: the compiler keeps them in
/// order.
[[gnu::always_inline]] inline void leave_fence_to_others() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

/// One thread's as long as it lives; a later one may have the same.
inline std::uintptr_t this_thread_number() noexcept {
  return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
}

}  // namespace larklane::vci
