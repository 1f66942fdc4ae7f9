// The benchmark program: plain MPI-4, one process for each rank. `larklane bench` starts the one
// that was built for the selected MPI.

#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "measure/machine.hpp"
#include "measure/record.hpp"
#include "measure/session.hpp"
#include "measure/watchdog.hpp"
#include "suite/benchmarks.hpp"
#include "suite/clock.hpp"
#include "suite/grid.hpp"
#include "suite/link.hpp"

namespace larklane::bench {
namespace {

constexpr int kUsage = 2, kFailed = 1;

int rank_of_this() {
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// Threads that work in a round.
int threads_of_this(const Options& o) {
  const Benchmark& benchmark = *find_benchmark(o.benchmark);
  if (ranks_of(benchmark) == Ranks::crew) return static_cast<int>(o.threads_of_process());
  const Measure* const measure = measure_of(o.benchmark);
  const bool sends = (measure == measure_pair || measure == measure_exposed) && rank_of_this() == 0;
  return ranks_of(benchmark) == Ranks::grid || sends ? static_cast<int>(o.threads) : 1;
}

/// True if any host has more threads than cores. Collective.
/// @param host  the ranks of this host
bool is_oversubscribed(MPI_Comm host, int threads) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_ZERO(&cores);  // more than fit
  MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, host);
  MPI_Allreduce(MPI_IN_PLACE, &threads, 1, MPI_INT, MPI_SUM, host);
  int is_over = CPU_COUNT(&cores) > 0 && threads > CPU_COUNT(&cores);
  MPI_Allreduce(MPI_IN_PLACE, &is_over, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return is_over != 0;
}

Environment environment_of_all(const Options& options) {
  Environment e;
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(text, &length);
  text[std::strcspn(text, "\n,")] = '\0';
  e.mpi = text;
  if (const auto version = e.mpi.find("Version:"); version != std::string::npos)
    e.mpi = "MPICH " + e.mpi.substr(e.mpi.find_first_not_of(" \t", version + 8));
  MPI_Comm_size(MPI_COMM_WORLD, &e.ranks);
  char mine[256] = {};
  std::snprintf(mine, sizeof mine, "%s", binding().c_str());
  std::vector<char> all(static_cast<std::size_t>(e.ranks) * sizeof mine);
  MPI_Allgather(mine, sizeof mine, MPI_CHAR, all.data(), sizeof mine, MPI_CHAR, MPI_COMM_WORLD);
  for (int r = 0; r < e.ranks; ++r)
    e.bindings.emplace_back(&all[static_cast<std::size_t>(r) * sizeof mine]);
  MPI_Comm host;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int rank_on_host;
  MPI_Comm_rank(host, &rank_on_host);
  const int first = rank_on_host == 0 ? 1 : 0;
  MPI_Allreduce(&first, &e.hosts, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  e.is_oversubscribed = is_oversubscribed(host, threads_of_this(options));
  MPI_Comm_free(&host);
  return e;
}

/// Another thread may hang inside the MPI with its locks held, so MPI_Abort runs on its own thread
/// and gets this long. MPICH's launcher does not always notice a rank that only exits.
[[noreturn]] void end_launch() {
  std::fflush(nullptr);
  std::thread([] { MPI_Abort(MPI_COMM_WORLD, kFailed); }).detach();
  std::this_thread::sleep_for(std::chrono::seconds(5));
  _exit(kFailed);
}

int measure(Record& record) {
  Environment& environment = record.environment;
  record.options.yields = environment.is_oversubscribed;
  const Options& o = record.options;
  const Benchmark& benchmark = *find_benchmark(o.benchmark);
  std::optional<Links> links;
  if (ranks_of(benchmark) == Ranks::links) links.emplace();
  const std::vector<Link> none;
  if (links) environment.clock_error_ns = links->clock_error_ns();
  environment.timer_ns = timer_cost_ns();
  if (ranks_of(benchmark) == Ranks::grid) {
    const Grid grid(environment.ranks, benchmark.axes);
    environment.grid = grid.sides();
    for (int r = 0; r < environment.ranks; ++r)
      environment.neighbours.push_back(grid.neighbours(r));
  }
  Measure* const measure_one = measure_of(o.benchmark);
  std::size_t index = 0;
  const auto measure_size = [&](std::uint64_t size, double budget_ns, const Watcher& watcher) {
    if (links) {
      links->read_clocks();
      environment.clock_error_ns = std::max(environment.clock_error_ns, links->clock_error_ns());
    }
    return measure_one(o.at(index++), size, links ? links->own() : none, environment.timer_ns,
                       budget_ns, watcher);
  };
  return measure_sizes({&record, rank_of_this() == 0, end_launch}, measure_size);
}

bool asks_for_help(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc,
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

/// Each rank parses for itself, but a file may be missing on one. The lowest rank with the highest
/// status prints the reason, and all ranks stop. Collective.
/// @return as parse_options()
int parse_on_all(int argc, char** argv, Options* options) {
  struct {
    int status, rank;
  } mine{parse_options(argc, argv, false, options), rank_of_this()}, worst{};
  MPI_Allreduce(&mine, &worst, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD);
  Options unused;
  if (worst.status >= 0 && worst.rank == mine.rank) parse_options(argc, argv, true, &unused);
  return worst.status;
}

/// With --bare the program asks the MPI only for the thread level that it needs; of messages, for
/// --level.
int level_of(int argc, char** argv) {
  Options o;
  if (parse_options(argc, argv, false, &o) >= 0) return MPI_THREAD_MULTIPLE;
  if (o.is_bare && o.threads == 1) return MPI_THREAD_SINGLE;
  if (o.is_funneled() || o.level == "funneled") return MPI_THREAD_FUNNELED;
  if (o.level == "single") return MPI_THREAD_SINGLE;
  return o.level == "serialized" ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
}

int run(int argc, char** argv) {
  Options unused;
  if (asks_for_help(argc, argv)) return printed(parse_options(argc, argv, true, &unused));
  int provided;
  const int level = level_of(argc, argv);
  const double began = now_ns();
  MPI_Init_thread(&argc, &argv, level, &provided);
  note_startup(now_ns() - began);
  Record record;
  const bool tells = rank_of_this() == 0;
  int status = parse_on_all(argc, argv, &record.options);
  if (status < 0) {
    record.environment = environment_of_all(record.options);
    const std::string problem = refusal(record.options, record.environment.ranks, provided);
    if (!problem.empty() && tells) std::fprintf(stderr, "larklane bench: %s\n", problem.c_str());
    status = problem.empty() ? measure(record) : kUsage;
  }
  // MPI_Finalize may hang, too: the results are already saved.
  Watchdog ending(record.options.limit_s, [](const std::string& what) {
    std::fprintf(stderr, "larklane bench: %s hangs\n", what.c_str());
    end_launch();
  });
  ending.feed("MPI_Finalize");
  if (tells) status = printed(status);
  MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  return status;
}

}  // namespace
}  // namespace larklane::bench

int main(int argc, char** argv) { return larklane::bench::run(argc, argv); }
