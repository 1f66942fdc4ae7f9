#pragma once
// The benchmarks of the program, by name.

#include <cstdint>
#include <string>
#include <vector>

#include "link.hpp"
#include "measure/catalogue.hpp"
#include "measure/options.hpp"
#include "measure/series.hpp"
#include "turns.hpp"

namespace larklane::bench {

/// One size. Collective over all ranks. @return complete on rank 0
/// @param links      those of Ranks::links
/// @param timer_ns   what reading the clock costs
/// @param budget_ns  with --budget: rounds are dropped when more would take longer
using Measure = Point(const Options& options, std::uint64_t size, const std::vector<Link>& links,
                      double timer_ns, double budget_ns, const Watcher& watcher);
/// By the first word of a row: measure_NAME.
#define LARKLANE_BENCHMARK(function, ...) Measure measure_##function;
#include "benchmarks.def"
#undef LARKLANE_BENCHMARK
Measure* measure_of(const std::string& benchmark);

/// Who sends to whom.
enum class Ranks {
  links,  ///< rank 0 to its neighbours
  grid,
  crew,  ///< of messages between threads, and of applications: refusal_of_crew()
};
constexpr Ranks ranks_of(const Benchmark& benchmark) {
  return benchmark.is_of_lanes() ? Ranks::crew : benchmark.axes > 0 ? Ranks::grid : Ranks::links;
}

/// @return what can't be done with these ranks and options; empty if it can
std::string refusal(const Options& options, int ranks, int thread_level);

}  // namespace larklane::bench
