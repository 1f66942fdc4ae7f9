#pragma once
// Messages without an MPI, one process for each rank.

#include <cstdint>
#include <functional>
#include <string>

#include "measure/record.hpp"
#include "measure/session.hpp"
#include "world.hpp"

namespace larklane::bench {

/// Measures one size. Collective.
/// @return complete on rank 0
using MeasureNatively = std::function<Point(const Record&, std::uint64_t bytes, double budget_ns,
                                            const Watcher&, NativeWorld&)>;

/// The differences between programs.
struct Program {
  Around around{};
  /// Measures on one rank; empty: the program needs pairs of ranks.
  MeasureNatively measure_alone{};
  MeasureNatively measure_application{};
  /// Limit of the lanes; each way must get all the lanes that it uses. 0: threads may share lanes.
  std::uint32_t lanes_max = 0;
};

/// @return exit status
int run_messages(int argc, char** argv, const Program& program);

}  // namespace larklane::bench
