// Sweep3d: the wave of a transport sweep over a plane of ranks, from each corner.

#include <mpi.h>

#include <span>

#include "benchmarks.hpp"
#include "grid.hpp"
#include "pattern.hpp"
#include "wait.hpp"

namespace larklane::bench {
namespace {

constexpr std::size_t kCorners = 4, kAxes = 2;
/// Blocks of a rank's column. Each has its own faces along both axes, so that all may be in flight
/// at once. More blocks cost memory, fewer leave less of a wave.
constexpr std::size_t kBlocks = 4;
static_assert(kCorners * kBlocks * kAxes <= kRoutesMax);

std::size_t route_of(std::size_t corner, std::size_t block) {
  return (corner * kBlocks + block) * kAxes;
}

std::vector<Route> routes_of_sweep() {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Grid grid(ranks, kAxes);
  std::vector<Route> routes;
  for (std::size_t corner = 0; corner < kCorners; ++corner)
    for (std::size_t block = 0; block < kBlocks; ++block)
      for (std::size_t axis = 0; axis < kAxes; ++axis) {
        const int away = corner >> axis & 1 ? -1 : 1;
        routes.push_back({grid.neighbour(rank, axis, away), grid.neighbour(rank, axis, -away)});
      }
  return routes;
}

class Sweep final : public Pattern {
 public:
  Sweep(const Options& options, std::uint64_t size, double timer_ns, const Watcher& watcher)
      : Pattern(options, size, routes_of_sweep(), timer_ns, watcher) {}

 private:
  void step(Exchange& exchange, std::uint32_t iteration) override {
    for (std::size_t corner = 0; corner < kCorners; ++corner) sweep(corner, exchange, iteration);
  }

  /// No deadlock: inflow comes from ranks nearer to the corner. An outflow completes when its
  /// receiver has reached this corner, too, and for that the receiver only has to finish the corner
  /// before.
  void sweep(std::size_t corner, Exchange& exchange, std::uint32_t iteration) {
    const std::size_t first = route_of(corner, 0), end = route_of(corner + 1, 0);
    exchange.start(first, end);
    for (std::size_t block = 0; block < kBlocks; ++block) {
      const std::size_t at = route_of(corner, block);
      const std::uint64_t stage = (iteration * kCorners + corner) * kBlocks + block;
      do_block(std::span(exchange.received).subspan(at, kAxes),
               std::span(exchange.sent).subspan(at, kAxes), stage);
    }
    exchange.finish(first, end);
  }

  using Faces = std::span<const std::unique_ptr<Face>>;
  void do_block(Faces inflow, Faces outflow, std::uint64_t stage) {
    for (const auto& face : inflow) face->await_whole();
    team_.run([&](std::uint32_t thread) {
      compute(
          thread, stage,
          [&](std::uint32_t partition) {
            for (const auto& face : inflow)
              wait_until([&] { return face->arrived(partition, thread); });
          },
          [&](std::uint32_t partition, bool last) {
            for (const auto& face : outflow) face->ready(partition, thread, last);
          });
    });
    for (const auto& face : outflow) face->joined();
  }
};

}  // namespace

Point measure_sweep3d(const Options& options, std::uint64_t size, const std::vector<Link>&,
                      double timer_ns, double budget_ns, const Watcher& watcher) {
  return Sweep(options, size, timer_ns, watcher).run(budget_ns);
}

}  // namespace larklane::bench
