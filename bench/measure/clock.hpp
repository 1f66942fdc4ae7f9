#pragma once
// The benchmarks' clock.

#include "base/clock.hpp"

namespace larklane::bench {

/// CLOCK_MONOTONIC in nanoseconds: all processes of a host share this clock.
inline double now_ns() { return static_cast<double>(larklane::now_ns()); }

/// The median cost of many now_ns() calls, nanoseconds.
double timer_cost_ns();

}  // namespace larklane::bench
