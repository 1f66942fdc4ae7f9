#include "model/groups.hpp"

#include "model/ploggp.hpp"

namespace larklane::model {

std::uint32_t ruled_groups(std::uint32_t partitions, std::uint64_t partition_bytes) {
  // The largest n that is not above sqrt(2) times the square root: half way to it, in log2.
  const std::uint64_t most_squared = partitions * partition_bytes / (96 << 10);
  std::uint64_t groups = 1;
  while (groups < partitions && 4 * groups * groups <= most_squared) groups *= 2;
  return static_cast<std::uint32_t>(groups < partitions ? groups : partitions);
}

std::uint32_t modelled_groups(const Tuning* tuning, std::uint32_t partitions,
                              std::uint64_t partition_bytes, double delay_ns) {
  if (tuning == nullptr || tuning->ranges.empty()) return ruled_groups(partitions, partition_bytes);
  const auto cost = [&](std::uint32_t groups) {
    const std::uint64_t bytes =
        (std::uint64_t{partitions} + groups - 1) / groups * partition_bytes;  // of the largest
    const Medium medium{.network = *tuning->network_of(bytes)};
    return closed_form::many_before_one_ns(medium, groups, bytes, delay_ns);
  };
  const std::uint32_t best = best_power_of_two(partitions, cost);
  return cost(partitions) < cost(best) ? partitions : best;
}

std::uint32_t tabled_groups(const Tuning* tuning, std::uint32_t partitions,
                            std::uint64_t partition_bytes) {
  if (tuning != nullptr)
    if (const auto groups = tuning->groups_of(partitions, partitions * partition_bytes))
      return *groups;
  return ruled_groups(partitions, partition_bytes);
}

std::uint32_t tabled_queues(const Tuning* tuning, std::uint32_t partitions,
                            std::uint64_t partition_bytes) {
  const Tuning::Entry* const entry =
      tuning != nullptr ? tuning->entry_of(partitions, partitions * partition_bytes) : nullptr;
  return entry != nullptr ? entry->queues : 0;
}

}  // namespace larklane::model
