#pragma once
// Rounds of several ways in turns, so that a disturbance of the machine affects all of them alike.

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "measure/options.hpp"
#include "measure/series.hpp"
#include "measure/session.hpp"
#include "partitioned.hpp"

namespace larklane::bench {

/// At least one if a budget needs the time of a round.
inline std::uint32_t warmup_rounds(const Options& o) {
  return o.budget_s > 0 ? std::max(o.warmup, 1u) : o.warmup;
}

/// Number of rounds that fit into --budget beside the warm-up, from the time of a warm-up round.
/// Collective: rank 0's budget and clock decide.
inline std::uint32_t rounds_within(const Options& o, double budget_ns, double warmup_ns) {
  constexpr double kRoundsMin = 5;
  std::uint32_t rounds = o.iterations;
  if (o.budget_s > 0)
    rounds = static_cast<std::uint32_t>(
        std::clamp((budget_ns - warmup_ns) / (warmup_ns / warmup_rounds(o)),
                   std::min(kRoundsMin, double(rounds)), double(rounds)));
  MPI_Bcast(&rounds, 1, MPI_UINT32_T, 0, MPI_COMM_WORLD);
  return rounds;
}

/// On the same requests: this also finds errors that only occur when a request is used again.
constexpr int kGuardRounds = 3;

/// Refuses the way if a side claimed completion while the message was held back, or if data was
/// wrong. Collective over two ranks.
inline void judge_held_back(std::uint64_t claims, std::uint64_t wrong, Series* series) {
  std::array<std::uint64_t, 2> of_both{claims, wrong};
  MPI_Allreduce(MPI_IN_PLACE, of_both.data(), 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (of_both[0] != 0)
    series->refused = "a side claims to be complete while the message is held back";
  else if (of_both[1] != 0)
    series->refused = "what has arrived, it says, is not in the buffer";
}

/// Guards, warm-up, then rounds: A B C A', A C B A', ... A' is the first way again, in its own
/// series: the difference of A and A' is the noise of the point. --bare leaves out the guards and
/// A'. Collective.
/// @param point      gets a series for each way; a way that is missing or refused by its guard has
///     no rounds
/// @param guard      (way's index, its series): one round, refused on all ranks or on none
/// @param one_round  (way's index, its series, iteration, does it count?)
/// @param progress   called with the share of rounds that are done
template <class Guard, class OneRound, class Progress>
void take_turns(const Options& o, double budget_ns, Point* point, Guard&& guard,
                OneRound&& one_round, Progress&& progress) {
  for (const std::string& way : o.ways)
    point->series.push_back({.way = way, .refused = missing(way)});
  std::vector<std::size_t> turn;
  for (std::size_t w = 0; w < point->series.size(); ++w) {
    Series& series = point->series[w];
    const int guards = o.is_bare ? 0 : kGuardRounds;
    for (int i = 0; i < guards && series.refused.empty(); ++i) guard(w, series);
    if (series.refused.empty()) turn.push_back(w);
  }
  if (turn.empty()) return;
  const std::size_t first = turn.front();
  Series again{.way = point->series[first].way + "'"};
  const double began = now_ns();
  for (std::uint32_t i = 0; i < warmup_rounds(o); ++i)
    for (const std::size_t w : turn) one_round(w, point->series[w], i, false);
  const auto ways = static_cast<double>(turn.size());
  const std::uint32_t rounds = rounds_within(o, budget_ns, (now_ns() - began) * (ways + 1) / ways);
  for (std::uint32_t i = 0; i < rounds; ++i) {
    one_round(first, point->series[first], i, true);
    for (std::size_t k = 1; k < turn.size(); ++k) {
      const std::size_t w = i % 2 == 0 ? turn[k] : turn[turn.size() - k];
      one_round(w, point->series[w], i, true);
    }
    if (!o.is_bare) one_round(first, again, i, true);
    progress(static_cast<double>(i + 1) / rounds);
  }
  point->rounds = rounds;
  if (!o.is_bare) point->series.push_back(std::move(again));
}

}  // namespace larklane::bench
