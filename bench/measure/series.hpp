#pragma once
// Samples of one way at one point, and the headline figure of them.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "catalogue.hpp"
#include "statistics.hpp"
#include "trace.hpp"

namespace larklane::bench {

/// By metric, with its unit in the name ("total_ns"): one sample a round.
using Samples = std::map<std::string, std::vector<double>>;

/// Every metric of metrics.hpp.
void add_metrics(const RoundTrace& trace, Samples* samples);

struct Series {
  std::string way;          ///< the second series of the baseline has a prime: A/A noise
  std::string refused{};    ///< why there are no figures; empty if there are some
  bool is_early = false;    ///< the guard saw a part arrive while another was held back
  std::uint64_t wrong = 0;  ///< rounds whose payload or completion was wrong
  Samples samples{};
  std::vector<RoundTrace> traces{};  ///< of the first rounds
};

struct Point {
  std::uint64_t bytes;
  std::uint32_t send_partitions, recv_partitions;
  std::uint32_t rounds = 0;
  std::vector<Series> series;  ///< the baseline first
};

/// The headline figure of a benchmark, one a round.
/// @param baseline  of the same point: overhead and availability refer to its median
std::vector<double> headline_values(const Benchmark& benchmark, const Series& series,
                                    const Series& baseline);

}  // namespace larklane::bench
