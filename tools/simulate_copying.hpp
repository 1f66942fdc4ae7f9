#pragma once
// `larklane simulate --costs`: the engine over the shared memory of a host whose costs were
// measured. Thread safety: single-owner.

#include "simulate.hpp"

namespace larklane::tools {

/// Prints, by size and number of groups, what a receiver is left to wait for.
/// @return the exit status, after a message
int simulate_copying(const SimulateRequest& request);

}  // namespace larklane::tools
