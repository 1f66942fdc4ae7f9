#pragma once
// Rounds of several ways in turns, so that a disturbance of the machine affects all of them alike.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "options.hpp"
#include "series.hpp"

namespace larklane::bench {

/// At least one if a budget needs the time of a round.
inline std::uint32_t warmup_rounds(const Options& o) {
  return o.budget_s > 0 ? std::max(o.warmup, 1u) : o.warmup;
}

/// Number of rounds that fit into --budget beside the warm-up, from the time of a warm-up round.
/// @param of_first  collective: returns rank 0's number; rank 0's budget and clock decide
template <class OfFirst>
std::uint32_t rounds_within(const Options& o, double budget_ns, double warmup_ns,
                            OfFirst&& of_first) {
  constexpr double kRoundsMin = 5;
  double rounds = o.iterations;
  if (o.budget_s > 0)
    rounds = std::clamp((budget_ns - warmup_ns) / (warmup_ns / warmup_rounds(o)),
                        std::min(kRoundsMin, rounds), rounds);
  return static_cast<std::uint32_t>(of_first(rounds));
}

/// Warm-up, then A B C A', A C B A', ... A' is the first way again, in its own series: the
/// difference of A and A' is the noise of the point. --bare leaves out A'. Collective.
/// @param turn      indices of the ways that take turns; not empty
/// @param point     has a series for each way
/// @param of_first  as in rounds_within()
/// @param round     (way's index, its series, iteration, does it count?)
/// @param progress  called with the share of rounds that are done
template <class OfFirst, class Round, class Progress>
void alternate(const Options& o, double budget_ns, const std::vector<std::size_t>& turn,
               Point* point, OfFirst&& of_first, Round&& round, Progress&& progress) {
  const std::size_t first = turn.front();
  const double began = now_ns();
  for (std::uint32_t i = 0; i < warmup_rounds(o); ++i)
    for (const std::size_t w : turn) round(w, point->series[w], i, false);
  const auto ways = static_cast<double>(turn.size());
  const double warmup_ns = (now_ns() - began) * (ways + 1) / ways;
  point->rounds = rounds_within(o, budget_ns, warmup_ns, of_first);
  Series again{.way = point->series[first].way + "'"};
  for (std::uint32_t i = 0; i < point->rounds; ++i) {
    round(first, point->series[first], i, true);
    for (std::size_t k = 1; k < turn.size(); ++k) {
      const std::size_t w = i % 2 == 0 ? turn[k] : turn[turn.size() - k];
      round(w, point->series[w], i, true);
    }
    if (!o.is_bare) round(first, again, i, true);
    progress(static_cast<double>(i + 1) / point->rounds);
  }
  if (!o.is_bare) point->series.push_back(std::move(again));
}

}  // namespace larklane::bench
