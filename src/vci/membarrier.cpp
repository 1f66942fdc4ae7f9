#include "vci/membarrier.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/log.hpp"

namespace larklane::vci {
namespace {

bool barrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool can_fence_all() noexcept {
  static const bool can = barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
                          barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  return can;
}

void fence_all() noexcept {
  while (!barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
    // It has worked before: without it two threads would be inside.
    if (errno != ENOMEM && errno != EINTR) {
      log_error(
          "membarrier(2) is not allowed any more (%s): what a thread has for itself can't be "
          "shared",
          std::strerror(errno));
      std::abort();
    }
    ::sched_yield();
  }
}

}  // namespace larklane::vci
