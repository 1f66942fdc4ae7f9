#include "vci/bias.hpp"

#include <sched.h>

namespace larklane::vci {

/// Runs before any thread holds a lock that the bias covers: each caller comes here first.
[[gnu::cold]] bool Bias::claim_slow() noexcept {
  std::uintptr_t owner = kNobodyYet;
  // relaxed: there is nothing yet to be seen.
  const bool is_first =
      owner_.compare_exchange_strong(owner, can_fence_all() ? this_thread_number() : kOver,
                                     std::memory_order_relaxed, std::memory_order_relaxed);
  return is_first && enter();
}

[[gnu::cold]] void Bias::end_slow() noexcept {
  while (true) {
    std::uintptr_t owner = owner_.load(std::memory_order_acquire);  // as in end()
    if (owner == kOver) return;
    // relaxed: the fence orders it.
    if (owner == kEnding ||
        !owner_.compare_exchange_strong(owner, kEnding, std::memory_order_relaxed,
                                        std::memory_order_relaxed)) {
      ::sched_yield();
      continue;
    }
    // Either the owner has seen that, or its flag is seen here.
    fence_all();
    // acquire: pairs with leave()'s release.
    while (is_inside_.load(std::memory_order_acquire)) ::sched_yield();
    owner_.store(kOver, std::memory_order_release);  // pairs with the acquires of others
    return;
  }
}

}  // namespace larklane::vci
