#pragma once
// Rounds of several ways in turns, over any transport.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "measure/alternate.hpp"
#include "measure/options.hpp"
#include "measure/series.hpp"
#include "measure/session.hpp"

namespace larklane::bench {

/// @param threads  each has began_ns and ended_ns
/// @return from the first thread's begin to the last thread's end
template <class Threads>
double span_ns(const Threads& threads) {
  double began_ns = threads[0].began_ns, ended_ns = threads[0].ended_ns;
  for (const auto& thread : threads) {
    began_ns = std::min(began_ns, thread.began_ns);
    ended_ns = std::max(ended_ns, thread.ended_ns);
  }
  return ended_ns - began_ns;
}

/// Sum of the numbers of all ranks. Collective.
template <class World>
double sum_of_ranks(World& world, double mine) {
  const std::vector<double> all = world.gather(mine);
  return std::accumulate(all.begin(), all.end(), 0.0);
}

/// All ways in turns. Collective.
/// @param point  has a series for each way; gets a second series of the first way
/// @param round  (way's index, its series, does it count?)
template <class World, class Round>
void measure_in_turns(const Options& o, World& world, const Watcher& watcher, double budget_ns,
                      Point* point, Round&& round) {
  std::vector<std::size_t> turn(point->series.size());
  std::iota(turn.begin(), turn.end(), 0);
  alternate(
      o, budget_ns, turn, point, [&](double rounds) { return world.gather(rounds)[0]; },
      [&](std::size_t w, Series& series, std::uint32_t, bool counts) { round(w, series, counts); },
      [&](double share) {
        if (world.rank() == 0) watcher.progress(share);
      });
}

}  // namespace larklane::bench
