#include "sim/learning.hpp"

#include <algorithm>
#include <utility>

#include "part/policy/registry.hpp"

namespace larklane::sim {

std::unique_ptr<part::Planner> planner_of(std::string_view policy, part::PlannedChannel channel) {
  // A scenario states the groups of the first rounds, so no policy has to know them.
  auto made = part::make_policy(policy, {.min_bytes = 1});
  return made ? (*made)->planner(std::move(channel)) : nullptr;
}

std::vector<std::uint32_t> Learning::start(std::uint64_t now_ps) {
  const part::Planner::Turn turn = planner_->on_start(1);
  is_sampled_ = turn.is_sampled;
  started_ps_ = now_ps;
  seen_ = {};
  seen_.ready_ns.assign(cells_.count(), 0);
  return turn.has_changed ? planner_->groups() : std::vector<std::uint32_t>();
}

void Learning::ready(std::uint32_t partition, std::uint64_t now_ps) {
  double& cell = seen_.ready_ns[cells_.of(partition)];
  cell = std::max(cell, ns(now_ps));
}

void Learning::moved(part::Run run, std::uint64_t began_ps, std::uint64_t now_ps) {
  seen_.runs.push_back({run.count * partition_bytes_, ns(began_ps), ns(now_ps)});
}

void Learning::end(std::uint64_t now_ps) {
  if (!is_sampled_) return;
  seen_.end_ns = ns(now_ps);
  if (const auto work = planner_->on_round_done(std::move(seen_))) work();
}

}  // namespace larklane::sim
