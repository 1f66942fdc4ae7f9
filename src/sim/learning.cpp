#include "sim/learning.hpp"

#include <algorithm>
#include <utility>

namespace larklane::sim {

std::vector<std::uint32_t> Learning::start(std::uint64_t now_ps) {
  const part::Learner::Turn turn = learner_.turn();
  is_sampled_ = turn.is_sampled;
  started_ps_ = now_ps;
  seen_ = {};
  seen_.ready_ns.assign(cells_.count(), 0);
  if (!turn.has_changed) return {};
  return learner_.is_at_base() ? base_ : cells_.boundaries(learner_.firsts());
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
  if (const auto study = learner_.see(std::move(seen_))) study->run();
}

}  // namespace larklane::sim
