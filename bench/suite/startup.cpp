// Time of MPI_Init_thread, of the slowest rank: one sample for each launch.

#include <mpi.h>

#include "benchmarks.hpp"

namespace larklane::bench {
namespace {

double of_this_ns = 0;

}  // namespace

void note_startup(double took_ns) { of_this_ns = took_ns; }

Point measure_startup(const Options& o, std::uint64_t size, const std::vector<Link>&, double,
                      double, const Watcher&) {
  Point point{size, 1, 1, 1, {}};
  double slowest_ns = 0;
  MPI_Allreduce(&of_this_ns, &slowest_ns, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  point.series.push_back({.way = o.ways.front()});
  point.series.back().samples["init_ns"].push_back(slowest_ns);
  return point;
}

}  // namespace larklane::bench
