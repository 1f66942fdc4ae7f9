#pragma once
// A benchmark, size by size: its table, its records, how far it is, and an end for what hangs.

#include <cstdint>
#include <functional>
#include <string>

#include "record.hpp"

namespace larklane::bench {

/// What the measuring is told while it goes on. Called on rank 0 only.
struct Watcher {
  /// And before the way is made: what hangs if that never ends.
  std::function<void(const std::string& way)> before_round;
  std::function<void(double share_done)> progress;
};

/// One of the processes that measure. Thread safety: single-owner.
struct Session {
  Record* record;
  bool tells;                        ///< rank 0
  std::function<void()> end_launch;  ///< ends all processes, whatever they do; never returns
};

/// @param budget_ns  with --budget: rounds are dropped when more would take longer
using MeasureSize =
    std::function<Point(std::uint64_t size, double budget_ns, const Watcher& watcher)>;

/// Writes out what is printed. @return `status`; if that is 0 and standard output did not take
/// everything, kFailed after a message
int printed(int status);

/// All sizes of the options. Collective. @return the exit status
int measure_sizes(const Session& session, const MeasureSize& measure);

}  // namespace larklane::bench
