#pragma once
// The benchmarks of the program, by name.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "link.hpp"
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
Measure measure_pair, measure_latency, measure_prtt, measure_call_cost, measure_sweep3d,
    measure_halo3d, measure_messages, measure_applications;

const std::vector<std::string>& latency_way_names();
const std::vector<std::string>& prtt_way_names();
inline constexpr std::uint64_t kPrttMessages = 16;  ///< of its longest train

/// Who sends to whom.
enum class Ranks {
  links,  ///< rank 0 to its neighbours
  grid,
  crew,  ///< of messages between threads, and of applications: refusal_of_crew()
};

struct Benchmark {
  Measure* measure;
  Ranks ranks;
  std::size_t axes;  ///< of the grid
  const std::vector<std::string>& ways;
  std::uint64_t messages = 1;  ///< of a size that lie side by side in memory
};
Benchmark benchmark_of(const std::string& name);

/// @return what can't be done with these ranks and options; empty if it can
std::string refusal(const Options& options, int ranks, int thread_level);

}  // namespace larklane::bench
