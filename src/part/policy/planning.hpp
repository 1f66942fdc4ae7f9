#pragma once
// Planning for one channel: its planner, the watch of its rounds, and the thread that makes plans.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "control/plane/plane.hpp"
#include "part/policy/plan_cells.hpp"
#include "part/policy/planner.hpp"
#include "part/policy/policy.hpp"
#include "part/policy/round_watch.hpp"

namespace larklane::part {

/// Time that calls take in a round to post runs to the network. Outlives its channel: the thread
/// that posts the last run measures that call only after its return. Thread safety: thread-safe.
class GivingTimes {
 public:
  // relaxed throughout: a mean of measurements; a straggler counts for the next round.
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

/// Completions are polled in batches, so their times coincide. Messages do not follow each other
/// faster than they are posted.
inline void space_ends(std::vector<model::SeenRun>& runs, double least_ns) {
  std::ranges::sort(runs, {}, &model::SeenRun::end_ns);
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (runs[i].begin_ns < runs[i - 1].end_ns)
      runs[i].end_ns = std::max(runs[i].end_ns, runs[i - 1].end_ns + least_ns);
}

/// The planner of one channel, the watch that records sampled rounds for it, and the plane with the
/// spare thread for its work.
/// Thread safety: on_start() and on_round_done() belong to the thread that calls Start and
/// completes; watch() as RoundWatch.
class Planning {
 public:
  enum class Medium : std::uint8_t {
    copies,   ///< the thread that completes a group copies it
    network,  ///< takes posted runs: threads do not delay each other
  };
  Planning(control::Plane& plane, Medium medium, std::uint32_t partitions,
           std::uint64_t partition_bytes, std::unique_ptr<Planner> planner)
      : plane_(plane),
        medium_(medium),
        planner_(std::move(planner)),
        watch_(PlanCells(partitions), partition_bytes) {}

  /// In every Start. Most rounds only count. @return the round is watched from now on
  bool on_start() {
    if (++starts_ < turn_.next_starts) {
      turn_.has_changed = false;
      return false;
    }
    turn_ = planner_->on_start(std::exchange(starts_, 0));
    if (turn_.is_sampled) {
      watch_.begin();
      giving_->begin();
    }
    return turn_.is_sampled;
  }
  /// First partition of each group after this round.
  std::vector<std::uint32_t> groups() const { return planner_->groups(); }
  /// The same; nullopt: as before.
  std::optional<std::vector<std::uint32_t>> changed_groups() const {
    if (!turn_.has_changed) return std::nullopt;
    return groups();
  }
  /// A watched round is complete.
  void on_round_done() {
    auto seen = watch_.seen();
    if (!seen) return;
    if (medium_ == Medium::network) {
      seen->threads.clear();
      space_ends(seen->runs, giving_->mean_ns());
    }
    if (auto work = planner_->on_round_done(std::move(*seen))) plane_.post_spare(std::move(work));
  }
  RoundWatch& watch() noexcept { return watch_; }
  const std::shared_ptr<GivingTimes>& giving() const noexcept { return giving_; }

 private:
  control::Plane& plane_;
  const Medium medium_;
  const std::unique_ptr<Planner> planner_;
  RoundWatch watch_;
  const std::shared_ptr<GivingTimes> giving_ = std::make_shared<GivingTimes>();
  Planner::Turn turn_{};
  std::uint64_t starts_ = 0;  ///< since the planner's last call
};

/// Source of a channel's planning. Thread safety: immutable.
struct PlanSource {
  std::shared_ptr<const Policy> policy;  ///< null: groups stay as they are
  control::Plane* plane = nullptr;

  /// Null: the channel has no planner.
  std::unique_ptr<Planning> make(Planning::Medium medium, PlannedChannel channel) const {
    if (policy == nullptr) return nullptr;
    const std::uint32_t partitions = channel.partitions;
    const std::uint64_t partition_bytes = channel.partition_bytes;
    return std::make_unique<Planning>(*plane, medium, partitions, partition_bytes,
                                      policy->planner(std::move(channel)));
  }
};

}  // namespace larklane::part
