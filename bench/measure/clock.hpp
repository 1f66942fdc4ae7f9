#pragma once
// The benchmarks' clock.

#include <time.h>

namespace larklane::bench {

/// CLOCK_MONOTONIC, nanoseconds: one clock for all processes of a host.
inline double now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// What now_ns() costs: the median of many, nanoseconds.
double timer_cost_ns();

}  // namespace larklane::bench
