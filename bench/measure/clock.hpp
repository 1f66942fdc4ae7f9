#pragma once
// The benchmarks' clock.

#include "base/clock.hpp"

namespace larklane::bench {

/// CLOCK_MONOTONIC, nanoseconds: one clock for all processes of a host.
inline double now_ns() { return static_cast<double>(larklane::now_ns()); }

/// What now_ns() costs: the median of many, nanoseconds.
double timer_cost_ns();

}  // namespace larklane::bench
