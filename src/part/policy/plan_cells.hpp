#pragma once
// The cells of a plan.

#include <cstdint>
#include <vector>

namespace larklane::part {

/// Neighbouring partitions that are planned as one: at most 128 cells, as equal as may be. Thread
/// safety: immutable.
class PlanCells {
 public:
  static constexpr std::uint32_t kMax = 128;
  explicit PlanCells(std::uint32_t partitions) noexcept;
  std::uint32_t count() const noexcept { return count_; }
  std::uint32_t partitions() const noexcept { return partitions_; }
  std::uint32_t of(std::uint32_t partition) const noexcept {
    if (count_ == partitions_) return partition;
    return static_cast<std::uint32_t>(((partition + std::uint64_t{1}) * count_ - 1) / partitions_);
  }
  /// First partition of each group, from first cells.
  std::vector<std::uint32_t> boundaries(std::vector<std::uint32_t> firsts) const;
  /// Cells in which groups begin, ascending. @param boundaries  first partition of each group
  std::vector<std::uint32_t> firsts(const std::vector<std::uint32_t>& boundaries) const;
  /// Does the run consist of whole cells?
  bool are_whole(std::uint32_t first, std::uint32_t count) const noexcept {
    const auto begins_cell = [this](std::uint32_t p) { return p == 0 || of(p) != of(p - 1); };
    return begins_cell(first) && (first + count == partitions_ || begins_cell(first + count));
  }

 private:
  std::uint32_t partitions_, count_;
};

}  // namespace larklane::part
