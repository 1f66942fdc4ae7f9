#pragma once
// Clocks of two ranks.

#include <mpi.h>

#include "measure/clock.hpp"
#include "measure/offset.hpp"

namespace larklane::bench {

/// Rank 1's clock minus rank 0's; the error's bound is half the round trip of the measurement. 0
/// and 0 if both read one clock. Collective over the two ranks of `pair`.
Offset clock_offset(MPI_Comm pair);

}  // namespace larklane::bench
