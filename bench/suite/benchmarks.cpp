#include "benchmarks.hpp"

#include <mpi.h>

#include <algorithm>
#include <climits>

#include "face.hpp"
#include "measure/crew.hpp"
#include "partitioned.hpp"
#include "way.hpp"

namespace larklane::bench {
namespace {

int tag_upper_bound() {
  int* bound = nullptr;
  int is_set = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &is_set);
  return is_set ? *bound : 32767;  // MPI 4.1, 9.1.2: at least
}

std::string refusal_of_ranks(const Options& o, const Benchmark& benchmark, int ranks) {
  if (benchmark.ranks == Ranks::crew) return refusal_of_crew(o, ranks, "mpirun -n");
  if (benchmark.ranks == Ranks::links) {
    const int needed = static_cast<int>(o.neighbours) + 1;
    const std::string asked =
        o.benchmark + (needed > 2 ? " --neighbours " + std::to_string(o.neighbours) : "");
    if (ranks == needed) return {};
    return asked + " needs " + std::to_string(needed) + " ranks, here are " +
           std::to_string(ranks) + ": mpirun -n " + std::to_string(needed) + " larklane bench " +
           asked;
  }
  if (ranks < 2)
    return "one rank has no neighbours: mpirun -n 2 (or more) larklane bench " + o.benchmark;
  if (o.receive_partitions() != o.send_partitions())
    return o.benchmark + " receives in as many partitions as it sends: no --recv-partitions";
  return {};
}

}  // namespace

Benchmark benchmark_of(const std::string& name) {
  static const std::vector<std::string> partitioned{"partitioned"};
  if (name == "latency") return {measure_latency, Ranks::links, 0, latency_way_names()};
  if (name == "prtt") return {measure_prtt, Ranks::links, 0, prtt_way_names(), kPrttMessages};
  if (name == "call-cost") return {measure_call_cost, Ranks::links, 0, partitioned};
  if (name == "sweep3d") return {measure_sweep3d, Ranks::grid, 2, face_way_names()};
  if (name == "halo3d") return {measure_halo3d, Ranks::grid, 3, face_way_names()};
  if (is_of_messages(name)) return {measure_messages, Ranks::crew, 0, lane_way_names()};
  if (is_application(name)) return {measure_applications, Ranks::crew, 0, lane_way_names()};
  return {measure_pair, Ranks::links, 0, way_names()};
}

std::string refusal(const Options& o, int ranks, int thread_level) {
  const Benchmark benchmark = benchmark_of(o.benchmark);
  const std::string of_ranks = refusal_of_ranks(o, benchmark, ranks);
  if (!of_ranks.empty()) return of_ranks;
  if (o.operation == "am" || o.operation == "put-signal")
    return o.benchmark + " --operation " + o.operation + ": an MPI has no " +
           (o.operation == "am" ? "active messages" : "signals of puts") + ": --with larklane";
  if (thread_level < MPI_THREAD_MULTIPLE && o.threads_of_process() > 1)
    return "this MPI does not give MPI_THREAD_MULTIPLE: --threads 1";
  if (benchmark.ranks == Ranks::grid && tag_max(o.threads) > tag_upper_bound())
    return "--threads " + std::to_string(o.threads) + ": more than this MPI has tags for";
  for (const std::uint64_t size : o.sizes)
    if (o.bytes_of(size) > INT_MAX / benchmark.messages)
      return "size " + std::to_string(o.bytes_of(size)) + ": " + o.benchmark + " has room for " +
             std::to_string(INT_MAX / benchmark.messages);
  for (const std::string& way : o.ways) {
    if (std::ranges::find(benchmark.ways, way) != benchmark.ways.end()) continue;
    std::string names;
    for (const std::string& name : benchmark.ways) names += " " + name;
    return "--ways " + way + ": expected some of" + names;
  }
  const auto is_missing = [](const std::string& way) { return !missing(way).empty(); };
  if (std::ranges::all_of(o.ways, is_missing))
    return o.benchmark + ": " + missing(o.ways.front()) + " of its own: --with larklane";
  return {};
}

}  // namespace larklane::bench
