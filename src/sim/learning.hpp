#pragma once
// Policy `learned` on a simulated channel: the engine's Learner, which sees virtual times. Reading
// a clock costs nothing here, and studies take no time.

#include <cstdint>
#include <vector>

#include "part/policy/learned/learner.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::sim {

/// Thread safety: single-owner.
class Learning {
 public:
  /// @param base  first partition of each group, with which it begins
  Learning(std::uint32_t partitions, std::uint64_t partition_bytes,
           const std::vector<std::uint32_t>& base)
      : cells_(partitions),
        partition_bytes_(partition_bytes),
        base_(base),
        learner_(partitions, partition_bytes, cells_.firsts(base)) {}

  /// In Start. @return the groups of the rounds after this one; empty: as they are
  std::vector<std::uint32_t> start(std::uint64_t now_ps);
  void ready(std::uint32_t partition, std::uint64_t now_ps);
  /// A run is posted, and has arrived.
  void moved(part::Run run, std::uint64_t began_ps, std::uint64_t now_ps);
  /// The round is over.
  void end(std::uint64_t now_ps);

 private:
  double ns(std::uint64_t ps) const { return static_cast<double>(ps - started_ps_) * 1e-3; }

  const part::Cells cells_;
  const std::uint64_t partition_bytes_;
  const std::vector<std::uint32_t> base_;
  part::Learner learner_;
  bool is_sampled_ = false;
  std::uint64_t started_ps_ = 0;
  part::SeenRound seen_;
};

}  // namespace larklane::sim
