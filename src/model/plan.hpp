#pragma once
// Which user partitions travel together, when they become ready as they were seen to. Pure
// functions.

#include <cstdint>
#include <span>
#include <vector>

#include "model/ploggp.hpp"

namespace larklane::model {

/// The input of a plan: readiness of the user partitions in rounds that were seen, on a network, or
/// where the thread that completes a transport partition copies it.
/// Thread safety: immutable.
struct Workload {
  Medium medium;
  std::uint64_t partition_bytes = 0;
  /// At least one; the same number of partitions in each, at least one; times of 0 or later.
  std::span<const std::vector<double>> rounds;
  /// Copies: which thread makes each partition ready, by round. A thread's copies (L and G for a
  /// transport partition) make its own later partitions later; ready times are without that. Empty:
  /// a network.
  std::span<const std::vector<std::uint32_t>> threads{};

  std::uint32_t partitions() const noexcept {
    return static_cast<std::uint32_t>(rounds.front().size());
  }
  /// That round alone.
  Workload round(std::size_t index) const noexcept {
    return {medium, partition_bytes, rounds.subspan(index, 1),
            threads.empty() ? threads : threads.subspan(index, 1)};
  }
};

/// Contiguous groups, each a transport partition.
struct Plan {
  std::vector<std::uint32_t> firsts;  ///< first partition of each group, ascending from 0
  double exposed_ns = 0;              ///< as exposed_ns() says
};

/// From when the last partition is ready until all groups have arrived, mean over the rounds.
double exposed_ns(const Workload& workload, std::span<const std::uint32_t> firsts);

/// Contiguous groups as equal as may be. @param count  1 to `partitions`
std::vector<std::uint32_t> equal_groups(std::uint32_t partitions, std::uint32_t count);

/// The best of the powers of two of groups that are as equal as may be: all that a table can say.
Plan best_equal_plan(const Workload& workload);

/// Groups of any sizes, never worse than best_equal_plan(). The remainder at the end is
/// max over times t of (t + the time of the groups that are ready at t or later),
/// which for given weights of the times is a sum over groups: dynamic programming finds the best
/// groups for the weights, the worst time of these gets more weight, and so on (fictitious play).
/// The best groups on the way are then improved by single boundaries.
/// @cost  O(rounds x partitions^2), some tens of times
Plan best_plan(const Workload& workload);

/// best_plan(), if plans of that kind do better than equal groups on rounds that they were not made
/// from, by more than the standard error of the difference (four-fold cross-validation). Else
/// best_equal_plan(), if these do better than one group in the same sense. Else one group: chance
/// in a few rounds does not repeat in the next ones. From 8 rounds on the test can tell; from one
/// round it can tell nothing.
Plan learned_plan(const Workload& workload);

}  // namespace larklane::model
