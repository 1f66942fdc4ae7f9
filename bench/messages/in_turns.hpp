#pragma once
// Rounds of several ways in turns, over any transport.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "measure/clock.hpp"
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

/// Number of rounds that fit into --budget beside the warm-up; rank 0's clock decides. Collective.
template <class World>
std::uint32_t rounds_within(const Options& o, World& world, double budget_ns, double warmup_ns,
                            std::uint32_t warmup) {
  constexpr double kRoundsMin = 5;
  double rounds = o.iterations;
  if (o.budget_s > 0)
    rounds = std::clamp((budget_ns - warmup_ns) / (warmup_ns / warmup),
                        std::min(kRoundsMin, rounds), rounds);
  return static_cast<std::uint32_t>(world.gather(rounds)[0]);
}

/// Warm-up, then A B A', like the other benchmarks. Collective.
/// @param point  has a series for each way; gets a second series of the first way
/// @param round  (way's index, its series, does it count?)
template <class World, class Round>
void measure_in_turns(const Options& o, World& world, const Watcher& watcher, double budget_ns,
                      Point* point, Round&& round) {
  const std::size_t ways = point->series.size();
  const double began = now_ns();
  const std::uint32_t warmup = std::max(o.warmup, o.budget_s > 0 ? 1u : 0u);
  for (std::uint32_t i = 0; i < warmup; ++i)
    for (std::size_t w = 0; w < ways; ++w) round(w, point->series[w], false);
  const auto share = static_cast<double>(ways + 1) / static_cast<double>(ways);
  point->rounds = rounds_within(o, world, budget_ns, (now_ns() - began) * share, warmup);
  Series again{.way = point->series[0].way + "'"};
  for (std::uint32_t i = 0; i < point->rounds; ++i) {
    round(0, point->series[0], true);
    for (std::size_t k = 1; k < ways; ++k) {
      const std::size_t w = i % 2 == 0 ? k : ways - k;
      round(w, point->series[w], true);
    }
    round(0, again, true);
    if (world.rank() == 0) watcher.progress(static_cast<double>(i + 1) / point->rounds);
  }
  point->series.push_back(std::move(again));
}

}  // namespace larklane::bench
