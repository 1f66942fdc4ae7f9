#pragma once
// The benchmarks of the program, by name.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "link.hpp"
#include "measure/catalogue.hpp"
#include "measure/options.hpp"
#include "measure/series.hpp"
#include "turns.hpp"

namespace larklane::bench {

/// Measures one size. Collective over all ranks.
/// @return complete on rank 0
/// @param links      those of Ranks::links
/// @param timer_ns   cost of reading the clock
/// @param budget_ns  with --budget: the benchmark drops rounds that would exceed it
using Measure = Point(const Options& options, std::uint64_t size, const std::vector<Link>& links,
                      double timer_ns, double budget_ns, const Watcher& watcher);
/// A row's first word names its function: measure_NAME.
#define LARKLANE_BENCHMARK(function, ...) Measure measure_##function;
#include "benchmarks.def"
#undef LARKLANE_BENCHMARK
Measure* measure_of(const std::string& benchmark);

/// The arrangement of senders and receivers.
enum class Ranks {
  links,  ///< rank 0 sends to its neighbours
  grid,
  crew,  ///< messages between threads, and applications: refusal_of_crew()
  any,
};
constexpr Ranks ranks_of(const Benchmark& benchmark) {
  if (benchmark.is_of_lanes()) return Ranks::crew;
  if (std::string_view(benchmark.name) == "startup") return Ranks::any;
  return benchmark.axes > 0 ? Ranks::grid : Ranks::links;
}

/// Keeps the time of this rank's MPI_Init_thread for benchmark `startup`.
void note_startup(double took_ns);

/// @return why these ranks can't run the options; empty if they can
std::string refusal(const Options& options, int ranks, int thread_level);

}  // namespace larklane::bench
