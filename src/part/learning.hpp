#pragma once
// Policy `learned` of one channel: its learner, its watch, and where plans are made.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "control/plane.hpp"
#include "part/learner.hpp"
#include "part/round_watch.hpp"

namespace larklane::part {

/// Thread safety: start() and end() belong to the thread that calls Start and completes; watch() as
/// RoundWatch.
class Learning {
 public:
  enum class Medium : std::uint8_t {
    copies,   ///< who completes a group copies it
    network,  ///< which takes what it is given: threads don't keep each other
  };
  /// @param plane  its helper makes the plans
  /// @param base   first partition of each group
  Learning(control::Plane& plane, Medium medium, std::uint32_t partitions,
           std::uint64_t partition_bytes, std::vector<std::uint32_t> base, std::uint64_t seed)
      : plane_(plane),
        medium_(medium),
        cells_(partitions),
        base_(std::move(base)),
        learner_(partitions, partition_bytes, cells_.firsts(base_), seed),
        watch_(cells_, partition_bytes) {}

  /// In every Start. @return the round is to be watched, and has begun
  bool start() {
    turn_ = learner_.turn();
    if (turn_.is_sampled) watch_.begin();
    return turn_.is_sampled;
  }
  /// First partition of each group after this round; nothing: as before.
  std::optional<std::vector<std::uint32_t>> changed_groups() const {
    if (!turn_.has_changed) return std::nullopt;
    return learner_.is_at_base() ? base_ : cells_.boundaries(learner_.firsts());
  }
  /// A watched round is complete.
  void end() {
    auto seen = watch_.seen();
    if (!seen) return;
    if (medium_ == Medium::network) seen->threads.clear();
    if (auto study = learner_.see(std::move(*seen)))
      plane_.post([study] {
        if (study.use_count() > 1) study->run();  // the channel is still there
      });
  }
  RoundWatch& watch() noexcept { return watch_; }

 private:
  control::Plane& plane_;
  const Medium medium_;
  const Cells cells_;
  const std::vector<std::uint32_t> base_;
  Learner learner_;
  RoundWatch watch_;
  Learner::Turn turn_{};
};

}  // namespace larklane::part
