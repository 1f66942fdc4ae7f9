#pragma once
// Rounds of several ways of an MPI in turns, after a guard of each.

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "clock.hpp"
#include "measure/alternate.hpp"
#include "measure/options.hpp"
#include "measure/series.hpp"
#include "measure/session.hpp"
#include "partitioned.hpp"

namespace larklane::bench {

/// Collective.
/// @return the number of rank 0
inline double of_rank_zero(double number) {
  MPI_Bcast(&number, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return number;
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

/// Guards, then alternate(). --bare leaves out the guards. Collective.
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
  alternate(o, budget_ns, turn, point, of_rank_zero, one_round, progress);
}

}  // namespace larklane::bench
