// Cost of a collective call of the MPI beside ordinary messages: MPI_Allreduce of the ranks' 8-byte
// words. `allreduce`: with no operation open; `allreduce-open`: with a receive that nothing has
// matched yet.

#include <mpi.h>

#include <cstdint>
#include <string>

#include "benchmarks.hpp"
#include "clock.hpp"

namespace larklane::bench {
namespace {

constexpr int kCalls = 100, kTag = 1;

/// @return rank 0's time of a call; `wrong` gets the wrong results
double call_ns(std::uint64_t number, std::uint64_t* wrong) {
  std::uint64_t sum = 0;
  const double began = now_ns();
  for (int call = 0; call < kCalls; ++call) {
    const std::uint64_t mine = number + static_cast<std::uint64_t>(call);
    MPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    *wrong += sum != 2 * mine;
  }
  return (now_ns() - began) / kCalls;
}

/// A message each way, which other messages of the round do not overtake.
std::uint64_t exchanged(int peer, std::uint64_t number) {
  std::uint64_t heard = 0;
  MPI_Sendrecv(&number, 1, MPI_UINT64_T, peer, 0, &heard, 1, MPI_UINT64_T, peer, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  return heard;
}

double round(bool is_open, int peer, std::uint64_t number, std::uint64_t* wrong) {
  *wrong += exchanged(peer, number) != number;
  MPI_Request request = MPI_REQUEST_NULL;
  std::uint64_t late = 0;
  if (is_open) MPI_Irecv(&late, 1, MPI_UINT64_T, peer, kTag, MPI_COMM_WORLD, &request);
  const double took_ns = call_ns(number, wrong);
  if (!is_open) return took_ns;
  MPI_Send(&number, 1, MPI_UINT64_T, peer, kTag, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  *wrong += late != number;
  return took_ns;
}

}  // namespace

Point measure_collective(const Options& o, std::uint64_t size, const std::vector<Link>&,
                         double timer_ns, double budget_ns, const Watcher& watcher) {
  Point point{size, 1, 1, 0, {}};
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::uint64_t number = 0;
  take_turns(
      o, budget_ns, &point, [](std::size_t, Series&) {},
      [&](std::size_t w, Series& series, std::uint32_t, bool counts) {
        if (rank == 0) watcher.before_round(series.way);
        std::uint64_t wrong = 0;
        const double took_ns = round(o.ways[w] == "allreduce-open", 1 - rank, ++number, &wrong);
        MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        series.wrong += wrong > 0;
        if (counts) series.samples["call_ns"].push_back(took_ns - timer_ns / kCalls);
      },
      [&](double share) {
        if (rank == 0) watcher.progress(share);
      });
  return point;
}

}  // namespace larklane::bench
