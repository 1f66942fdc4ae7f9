#include "part/lifetime.hpp"

#include <sched.h>

#include <utility>

namespace larklane::part {

void FailureSlot::set(Status status, std::string text) {
  const std::scoped_lock lock(mutex_);
  // relaxed: under the mutex.
  if (failed_.load(std::memory_order_relaxed)) return;
  status_ = status;
  text_ = std::move(text);
  // release: pairs with failed()'s acquire.
  failed_.store(true, std::memory_order_release);
}

void InUse::wait_until_free() const noexcept {
  while (!is_free()) ::sched_yield();
}

Status FailureSlot::status() const noexcept { return failed() ? status_ : Status{}; }

std::string FailureSlot::text() const { return failed() ? text_ : std::string{}; }

}  // namespace larklane::part
