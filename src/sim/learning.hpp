#pragma once
// The planner of a policy on a simulated channel, which gets virtual times. Reading a clock costs
// nothing here, and the planner's work takes no time.

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "part/policy/plan_cells.hpp"
#include "part/policy/planner.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::sim {

/// The planner of the policy with that name; null: it has none.
std::unique_ptr<part::Planner> planner_of(std::string_view policy, part::PlannedChannel channel);

/// Thread safety: single-owner.
class Learning {
 public:
  Learning(std::uint32_t partitions, std::uint64_t partition_bytes,
           std::unique_ptr<part::Planner> planner)
      : cells_(partitions), partition_bytes_(partition_bytes), planner_(std::move(planner)) {}

  /// In Start. @return the groups of the rounds after this one; empty: as they are
  std::vector<std::uint32_t> start(std::uint64_t now_ps);
  void ready(std::uint32_t partition, std::uint64_t now_ps);
  /// A run is posted, and has arrived.
  void moved(part::Run run, std::uint64_t began_ps, std::uint64_t now_ps);
  /// The round is over.
  void end(std::uint64_t now_ps);

 private:
  double ns(std::uint64_t ps) const { return static_cast<double>(ps - started_ps_) * 1e-3; }

  const part::PlanCells cells_;
  const std::uint64_t partition_bytes_;
  const std::unique_ptr<part::Planner> planner_;
  bool is_sampled_ = false;
  std::uint64_t started_ps_ = 0;
  part::SeenRound seen_;
};

}  // namespace larklane::sim
