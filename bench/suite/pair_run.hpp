#pragma once
// All ways between two ranks at one message size, round by round in turns, payload and completion
// verified in every round.

#include <cstdint>
#include <functional>

#include "measure/options.hpp"
#include "measure/series.hpp"
#include "suite/clock.hpp"

namespace larklane::bench {

/// What the measuring is told while it goes on. Called on rank 0 only.
struct Watcher {
  std::function<void(const std::string& way)> before_round;  ///< and what hangs if it never ends
  std::function<void(double share_done)> progress;
};

/// Collective over ranks 0 and 1. @return on rank 0 the point, elsewhere one without series
/// @param budget_ns  with --budget: rounds are dropped when more would take longer
Point measure_point(const Options& options, std::uint64_t size, Offset clock, double timer_ns,
                    double budget_ns, const Watcher& watcher);

}  // namespace larklane::bench
