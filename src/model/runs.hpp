#pragma once
// Costs of transport partitions, from rounds as their sender saw them. Pure functions.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/loggp.hpp"

namespace larklane::model {

/// A transport partition on its way.
struct SeenRun {
  std::uint64_t bytes = 0;
  double begin_ns = 0;  ///< it was ready, and the sender gave it away
  double end_ns = 0;    ///< it had arrived, as far as the sender can see
};

/// The costs to compute plans with: L is the time of one run without its bytes, overheads included;
/// h is added between two that follow each other. A run that was posted when no other was pending
/// took L + G k. A run that took more than that had to wait, and ended h + G k after the one
/// before. Each k gets the median of its times, and the fit makes their relative errors least.
/// Where the rounds do not separate L from h they are equal. Nothing: fewer than two sizes, which
/// separate neither from G. @param rounds  runs in any order
std::optional<LogGP> fit_runs(std::span<const std::vector<SeenRun>> rounds);

/// Of an even number of values the upper one. @pre not empty
double upper_median(std::vector<double> values);

}  // namespace larklane::model
