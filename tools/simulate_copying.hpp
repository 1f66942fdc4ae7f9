#pragma once
// `larklane simulate --costs`: the engine over the shared memory of a host with measured costs.
// Thread safety: single-owner.

#include "simulate.hpp"

namespace larklane::tools {

/// Prints, by size and number of groups, the exposed time that a receiver is left to wait.
/// @return the exit status, after a message
int simulate_copying(const SimulateRequest& request);

}  // namespace larklane::tools
