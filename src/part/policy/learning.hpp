#pragma once
// Policy `learned` of one channel: its learner, its watch, and where plans are made.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "control/plane/plane.hpp"
#include "part/policy/learned/learner.hpp"
#include "part/policy/round_watch.hpp"

namespace larklane::part {

/// What calls took in a round to give runs to the network. Outlives its channel: who has given the
/// last one away knows only then what that took. Thread safety: thread-safe.
class GivingTimes {
 public:
  // relaxed throughout: a mean of measurements; a straggler's counts for the next round.
  void begin() noexcept {
    sum_ns_.store(0, std::memory_order_relaxed);
    count_.store(0, std::memory_order_relaxed);
  }
  void add(std::uint64_t ns) noexcept {
    sum_ns_.fetch_add(ns, std::memory_order_relaxed);
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  double mean_ns() const noexcept {
    const std::uint64_t count = count_.load(std::memory_order_relaxed);
    return count == 0 ? 0
                      : static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) /
                            static_cast<double>(count);
  }

 private:
  std::atomic<std::uint64_t> sum_ns_{0}, count_{0};
};

/// Completions are heard in batches, and then look as if they had come all at once. Messages don't
/// follow each other faster than they are given away.
inline void space_ends(std::vector<model::SeenRun>& runs, double least_ns) {
  std::ranges::sort(runs, {}, &model::SeenRun::end_ns);
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (runs[i].begin_ns < runs[i - 1].end_ns)
      runs[i].end_ns = std::max(runs[i].end_ns, runs[i - 1].end_ns + least_ns);
}

/// Thread safety: start() and end() belong to the thread that calls Start and completes; watch() as
/// RoundWatch.
class Learning {
 public:
  enum class Medium : std::uint8_t {
    copies,   ///< who completes a group copies it
    network,  ///< which takes what it is given: threads don't keep each other
  };
  /// @param plane  on whose spare thread plans are made
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
    if (turn_.is_sampled) {
      watch_.begin();
      giving_->begin();
    }
    return turn_.is_sampled;
  }
  /// First partition of each group after this round.
  std::vector<std::uint32_t> groups() const {
    return learner_.is_at_base() ? base_ : cells_.boundaries(learner_.firsts());
  }
  /// The same; nothing: as before.
  std::optional<std::vector<std::uint32_t>> changed_groups() const {
    if (!turn_.has_changed) return std::nullopt;
    return groups();
  }
  /// A watched round is complete.
  void end() {
    auto seen = watch_.seen();
    if (!seen) return;
    if (medium_ == Medium::network) {
      seen->threads.clear();
      space_ends(seen->runs, giving_->mean_ns());
    }
    if (auto study = learner_.see(std::move(*seen)))
      plane_.post_spare([study] {
        if (study.use_count() > 1) study->run();  // the channel is still there
      });
  }
  RoundWatch& watch() noexcept { return watch_; }
  const std::shared_ptr<GivingTimes>& giving() const noexcept { return giving_; }

 private:
  control::Plane& plane_;
  const Medium medium_;
  const Cells cells_;
  const std::vector<std::uint32_t> base_;
  Learner learner_;
  RoundWatch watch_;
  const std::shared_ptr<GivingTimes> giving_ = std::make_shared<GivingTimes>();
  Learner::Turn turn_{};
};

}  // namespace larklane::part
