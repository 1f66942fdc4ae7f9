#pragma once
// Messages without an MPI: a process for each rank.

#include <functional>
#include <string>
#include <vector>

#include "measure/record.hpp"
#include "measure/session.hpp"
#include "world.hpp"

namespace larklane::bench {

/// What programs differ in.
struct Program {
  std::vector<std::string> ways{};  ///< that --ways may name
  BeforeRound before_round{};
  /// By one rank; none: pairs of them are needed.
  std::function<Point(const Record&, std::uint64_t bytes, double budget_ns, const Watcher&,
                      NativeWorld&)>
      measure_alone{};
};

/// @return exit status
int run_messages(int argc, char** argv, const Program& program);

}  // namespace larklane::bench
