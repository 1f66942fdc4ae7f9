#pragma once
// Message rate of posts alone: the threads of one process send to themselves, in windows that are
// received only afterwards. This shows a lane's own cost, without a peer that limits it.

#include <cstdint>

#include "measure/record.hpp"
#include "measure/session.hpp"
#include "world.hpp"

namespace larklane::bench {

/// Measures all ways in turns, A B A'. Receiving and checking the messages is not timed; retries of
/// a full window are. Samples: rate_per_s; held_share, the share of lane uses that found another
/// thread there.
/// @pre one rank
Point measure_injection(const Record& record, std::uint64_t bytes, double budget_ns,
                        const Watcher& watcher, NativeWorld& world);

}  // namespace larklane::bench
