// Halo3d: the exchange of a 7-point stencil in a box of ranks.

#include <mpi.h>

#include "benchmarks.hpp"
#include "grid.hpp"
#include "pattern.hpp"

namespace larklane::bench {
namespace {

constexpr std::size_t kAxes = 3;

std::vector<Route> routes_of_halo() {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Grid grid(ranks, kAxes);
  std::vector<Route> routes;
  for (std::size_t axis = 0; axis < kAxes; ++axis)
    for (const int towards : {-1, 1})
      routes.push_back({grid.neighbour(rank, axis, towards), grid.neighbour(rank, axis, -towards)});
  return routes;
}

class Halo final : public Pattern {
 public:
  Halo(const Options& options, std::uint64_t size, double timer_ns, const Watcher& watcher)
      : Pattern(options, size, routes_of_halo(), timer_ns, watcher) {}

 private:
  /// Each thread has a share of every face. A rank starts all receives before it waits.
  void step(Exchange& exchange, std::uint32_t iteration) override {
    exchange.start();
    team_.run([&](std::uint32_t thread) {
      compute(
          thread, iteration, [](std::uint32_t) {},
          [&](std::uint32_t partition, bool last) {
            for (const auto& face : exchange.sent) face->ready(partition, thread, last);
          });
    });
    for (const auto& face : exchange.sent) face->joined();
    exchange.finish();
  }
};

}  // namespace

Point measure_halo3d(const Options& options, std::uint64_t size, const std::vector<Link>&,
                     double timer_ns, double budget_ns, const Watcher& watcher) {
  return Halo(options, size, timer_ns, watcher).run(budget_ns);
}

}  // namespace larklane::bench
