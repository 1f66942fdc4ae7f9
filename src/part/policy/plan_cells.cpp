#include "part/policy/plan_cells.hpp"

#include <algorithm>

namespace larklane::part {

PlanCells::PlanCells(std::uint32_t partitions) noexcept
    : partitions_(partitions), count_(std::min(partitions, kMax)) {}

std::vector<std::uint32_t> PlanCells::boundaries(std::vector<std::uint32_t> firsts) const {
  for (std::uint32_t& first : firsts)
    first = static_cast<std::uint32_t>(first * std::uint64_t{partitions_} / count_);
  return firsts;
}

std::vector<std::uint32_t> PlanCells::firsts(const std::vector<std::uint32_t>& boundaries) const {
  std::vector<std::uint32_t> firsts;
  for (const std::uint32_t boundary : boundaries)
    if (firsts.empty() || of(boundary) != firsts.back()) firsts.push_back(of(boundary));
  return firsts;
}

}  // namespace larklane::part
