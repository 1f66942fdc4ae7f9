#include "part/backoff.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>

#include "part/counters.hpp"

namespace larklane::part {

std::uint64_t runs_moved_by_this_thread() noexcept { return runs_moved; }

Backoff::Backoff(const Config& config) noexcept
    : spins_(config.wait_spins),
      yields_(config.wait_yields),
      sleep_ns_min_(config.wait_sleep_ns_min),
      sleep_ns_max_(config.wait_sleep_ns_max) {}

void Backoff::idle() noexcept {
  ++turns_;
  if (turns_ <= spins_) return;
  if (turns_ <= spins_ + yields_) {
    ::sched_yield();
    return;
  }
  const std::uint32_t doublings = std::min(turns_ - spins_ - yields_ - 1, 20u);
  const std::uint64_t ns = std::min(sleep_ns_min_ << doublings, sleep_ns_max_);
  const timespec pause{static_cast<time_t>(ns / 1'000'000'000),
                       static_cast<long>(ns % 1'000'000'000)};
  ::nanosleep(&pause, nullptr);
}

}  // namespace larklane::part
