#pragma once
// How fast the threads of one process hand messages to the network: to themselves, in windows that
// nobody takes in meanwhile. What a lane costs where no peer limits it.

#include <cstdint>

#include "measure/record.hpp"
#include "measure/session.hpp"
#include "world.hpp"

namespace larklane::bench {

/// Of all ways in turns, A B A'. Each message is looked at when it is taken in, which does not
/// count; a window that finds no room does. Samples: rate_per_s; held_share, of the uses of lanes
/// that have found another thread there.
/// @pre one rank
Point measure_injection(const Record& record, std::uint64_t bytes, double budget_ns,
                        const Watcher& watcher, NativeWorld& world);

}  // namespace larklane::bench
