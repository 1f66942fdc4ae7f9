#include "vci/owner.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.hpp"

namespace larklane::vci {
namespace {

bool barrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

bool has_barriers() noexcept {
  static const bool has = barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
                          barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  return has;
}

}  // namespace

Owner::~Owner() {
  while (entries_ != nullptr) entries_ = std::move(entries_->next_);
}

bool Owner::set() noexcept {
  if (!has_barriers()) return false;
  Entry* entry = entries_.get();
  while (entry != nullptr && entry->thread_ != caller()) entry = entry->next_.get();
  if (entry == nullptr) {
    std::unique_ptr<Entry> made(new (std::nothrow) Entry(caller()));
    if (made == nullptr) return false;
    made->next_ = std::move(entries_);
    entries_ = std::move(made);
    entry = entries_.get();
  }
  current_.store(entry, std::memory_order_release);
  return true;
}

[[gnu::cold]] void Owner::wait_until_out_slow() const noexcept {
  const Entry* const entry = current_.load(std::memory_order_relaxed);  // the word is held
  if (entry == own_entry()) return;
  while (!barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
    // It has worked before: without it two threads would be inside.
    if (errno != ENOMEM && errno != EINTR) {
      log_error("membarrier(2) is not allowed any more (%s): single-threaded lanes can't go on",
                std::strerror(errno));
      std::abort();
    }
    ::sched_yield();
  }
  // acquire: pairs with leave()'s release.
  while (entry->is_inside_.load(std::memory_order_acquire)) ::sched_yield();
}

}  // namespace larklane::vci
