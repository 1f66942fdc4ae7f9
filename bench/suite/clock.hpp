#pragma once
// The benchmarks' clock.

#include <mpi.h>
#include <time.h>

#include "measure/offset.hpp"

namespace larklane::bench {

/// CLOCK_MONOTONIC, nanoseconds: one clock for all processes of a host.
inline double now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// What now_ns() costs: the median of many, nanoseconds.
double timer_cost_ns();

/// Rank 1's clock minus rank 0's, and half the round trip that this was read from: the error's
/// bound. 0 and 0 if both read one clock. Collective over the two ranks of `pair`.
Offset clock_offset(MPI_Comm pair);

}  // namespace larklane::bench
