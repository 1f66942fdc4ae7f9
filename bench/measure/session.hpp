#pragma once
// Runs a benchmark size by size: table, records, progress, and a watchdog that ends a hung run.

#include <cstdint>
#include <functional>
#include <string>

#include "record.hpp"

namespace larklane::bench {

/// Callbacks of the measuring code. Called on rank 0 only.
struct Watcher {
  /// Called also before the way is created, so that the watchdog can name a way whose creation
  /// hangs.
  std::function<void(const std::string& way)> before_round;
  std::function<void(double share_done)> progress;
};

/// One of the measuring processes. Thread safety: single-owner.
struct Session {
  Record* record;
  bool tells;                        ///< true on rank 0, which prints
  std::function<void()> end_launch;  ///< ends all processes in any state; never returns
};

/// @param budget_ns  with --budget: the benchmark drops rounds that would exceed it
using MeasureSize =
    std::function<Point(std::uint64_t size, double budget_ns, const Watcher& watcher)>;

/// Flushes standard output.
/// @return `status`; if that is 0 and standard output lost data, kFailed after a message
int printed(int status);

/// Measures all sizes of the options. Collective.
/// @return the exit status
int measure_sizes(const Session& session, const MeasureSize& measure);

}  // namespace larklane::bench
