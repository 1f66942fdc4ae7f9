#include "vci/owner.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace larklane::vci {
namespace {

bool barrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

bool has_barriers() noexcept {
  static const bool has = barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
                          barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  return has;
}

}  // namespace

bool Owner::set() noexcept {
  if (!has_barriers()) return false;
  thread_.store(caller(), std::memory_order_relaxed);
  return true;
}

[[gnu::cold]] void Owner::wait_until_out_slow() const noexcept {
  // It has worked before an owner was set.
  (void)barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  // acquire: pairs with leave()'s release.
  while (is_inside_.load(std::memory_order_acquire)) ::sched_yield();
}

}  // namespace larklane::vci
