#pragma once
// Messages without an MPI: a process for each rank.

#include <cstdint>
#include <functional>
#include <string>

#include "measure/record.hpp"
#include "measure/session.hpp"
#include "world.hpp"

namespace larklane::bench {

/// One size. Collective. @return complete on rank 0
using MeasureNatively = std::function<Point(const Record&, std::uint64_t bytes, double budget_ns,
                                            const Watcher&, NativeWorld&)>;

/// What programs differ in.
struct Program {
  Around around{};
  /// By one rank; none: pairs of them are needed.
  MeasureNatively measure_alone{};
  MeasureNatively measure_application{};
  /// There have to be as many lanes as ways have, of so many at most; 0: threads may share them.
  std::uint32_t lanes_max = 0;
};

/// @return exit status
int run_messages(int argc, char** argv, const Program& program);

}  // namespace larklane::bench
