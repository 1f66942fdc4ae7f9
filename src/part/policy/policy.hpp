#pragma once
// The interface of aggregation policies: the send partitions that are planned to travel together.

#include <cstdint>
#include <memory>
#include <vector>

#include "part/policy/planner.hpp"

namespace larklane::part {

/// Capabilities that a policy takes from the transports.
struct PolicyNeeds {
  /// Groups change between rounds: planner() makes them from sampled arrivals.
  bool has_planner = false;
  /// Groups break up in a round: a receive partition that the program tests waits for no group.
  bool is_on_demand = false;
  /// Groups break up in a round: time after the first mark at which ready partitions leave. 0: no
  /// deadline.
  std::uint64_t deadline_ns = 0;
};

/// Made from text by make_policy(). The engine calls it when it makes a request, never in a round.
/// Thread safety: immutable.
class Policy {
 public:
  virtual ~Policy() = default;
  /// First partition of each group, ascending, starting with 0. If there is a planner, these are
  /// its base: the groups of the first rounds.
  /// @param partitions       >= 1
  /// @param partition_bytes  size of one partition
  virtual std::vector<std::uint32_t> groups(std::uint32_t partitions,
                                            std::uint64_t partition_bytes) const = 0;
  /// Of the queue pairs that a channel has for itself, the number that it uses. 0: all.
  virtual std::uint32_t queues(std::uint32_t /*partitions*/,
                               std::uint64_t /*partition_bytes*/) const {
    return 0;
  }
  virtual PolicyNeeds needs() const noexcept { return {}; }
  /// The planner of one channel. Null: the policy has none.
  virtual std::unique_ptr<Planner> planner(PlannedChannel) const { return nullptr; }

 protected:
  /// Groups of sizes that differ by at most one. @param count  clamped to 1 to `partitions`
  static std::vector<std::uint32_t> equal_groups(std::uint32_t partitions, std::uint64_t count);
};

}  // namespace larklane::part
