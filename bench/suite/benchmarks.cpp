#include "benchmarks.hpp"

#include <mpi.h>

#include <algorithm>
#include <climits>

#include "face.hpp"
#include "measure/crew.hpp"
#include "partitioned.hpp"

namespace larklane::bench {
namespace {

int tag_upper_bound() {
  int* bound = nullptr;
  int is_set = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &is_set);
  return is_set ? *bound : 32767;  // MPI 4.1, 9.1.2: at least
}

std::string refusal_of_ranks(const Options& o, const Benchmark& benchmark, int ranks) {
  if (ranks_of(benchmark) == Ranks::any) return {};
  if (ranks_of(benchmark) == Ranks::crew) return refusal_of_crew(o, ranks, "mpirun -n");
  if (ranks_of(benchmark) == Ranks::links) {
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

Measure* measure_of(const std::string& benchmark) {
#define LARKLANE_BENCHMARK(function, ...) measure_##function,
  static Measure* const functions[] = {
#include "benchmarks.def"
  };
#undef LARKLANE_BENCHMARK
  return functions[find_benchmark(benchmark) - kBenchmarks];
}

std::string refusal(const Options& o, int ranks, int thread_level) {
  const Benchmark& benchmark = *find_benchmark(o.benchmark);
  const std::string of_ranks = refusal_of_ranks(o, benchmark, ranks);
  if (!of_ranks.empty()) return of_ranks;
  if (o.operation == "am" || o.operation == "put-signal")
    return o.benchmark + " --operation " + o.operation + ": an MPI has no " +
           (o.operation == "am" ? "active messages" : "signals of puts") + ": --with larklane";
  if (benchmark.is_of_messages() && !o.count.empty())
    return o.benchmark + " --count " + o.count + ": not of an MPI: --with larklane";
  if (o.level != "multiple" && o.threads_that_communicate() > 1)
    return "--level " + o.level + ": of --threads 1";
  if (thread_level < MPI_THREAD_MULTIPLE && o.threads_that_communicate() > 1)
    return "this MPI does not give MPI_THREAD_MULTIPLE: --threads 1";
  if (ranks_of(benchmark) == Ranks::grid && tag_max(o.threads) > tag_upper_bound())
    return "--threads " + std::to_string(o.threads) + ": more than this MPI has tags for";
  for (const std::uint64_t size : o.sizes)
    if (o.bytes_of(size) > INT_MAX / benchmark.messages)
      return "size " + std::to_string(o.bytes_of(size)) + ": " + o.benchmark + " has room for " +
             std::to_string(INT_MAX / benchmark.messages);
  if (std::string problem = refusal_of_ways(o); !problem.empty()) return problem;
  const auto is_missing = [](const std::string& way) { return !missing(way).empty(); };
  if (std::ranges::all_of(o.ways, is_missing))
    return o.benchmark + ": " + missing(o.ways.front()) + " of its own: --with larklane";
  return {};
}

}  // namespace larklane::bench
