#pragma once
// When the cells of a sampled round became ready, and when runs of it went: what a Learner sees.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "part/layout.hpp"
#include "part/learner.hpp"

namespace larklane::part {

/// Thread safety: thread-safe between begin() and seen(), which belong to the thread that starts
/// and completes the round.
class RoundWatch {
 public:
  RoundWatch(const Cells& cells, std::uint64_t partition_bytes)
      : cells_(cells),
        partition_bytes_(partition_bytes),
        ready_(cells.count()),
        began_(cells.count()),
        runs_(2 * cells.count()) {}

  void begin() {
    // relaxed, here and below: the program orders Start before its Pready, and what a mover stores
    // comes before the count that completes the round.
    for (auto& ticks : began_) ticks.store(0, std::memory_order_relaxed);
    run_count_.store(0, std::memory_order_relaxed);
    started_ns_ = now_ns();
    started_ = now_ticks();
  }
  void ready(Run run) {
    const std::uint64_t now = now_ticks();
    const std::uint32_t last = cells_.of(run.first + run.count - 1);
    for (std::uint32_t cell = cells_.of(run.first); cell <= last; ++cell)
      ready_[cell].store(now, std::memory_order_relaxed);
  }
  /// A mover of this process takes `run`.
  void began(Run run) {
    began_[cells_.of(run.first)].store(now_ticks(), std::memory_order_relaxed);
  }
  /// A mover of this process has moved `run`, and has not published it yet.
  void ended(Run run) {
    const std::uint64_t begin = began_[cells_.of(run.first)].load(std::memory_order_relaxed);
    if (begin == 0) return;  // somebody else had taken it
    const std::uint32_t at = run_count_.fetch_add(1, std::memory_order_relaxed);
    if (at < runs_.size()) runs_[at] = {run.count * partition_bytes_, begin, now_ticks()};
  }
  /// The round, which is complete. Nothing: its times make no sense (a clock that went back).
  std::optional<SeenRound> seen() const {
    const std::uint64_t end = now_ticks(), end_ns = now_ns();
    if (end <= started_ || end_ns <= started_ns_) return std::nullopt;
    const double ns_per_tick =
        static_cast<double>(end_ns - started_ns_) / static_cast<double>(end - started_);
    bool is_sound = true;
    const auto ns = [&](std::uint64_t ticks) {
      is_sound = is_sound && ticks >= started_ && ticks <= end;
      return static_cast<double>(ticks - started_) * ns_per_tick;
    };
    SeenRound round;
    for (const auto& ticks : ready_)
      round.ready_ns.push_back(ns(ticks.load(std::memory_order_relaxed)));
    const std::size_t count =
        std::min<std::size_t>(run_count_.load(std::memory_order_relaxed), runs_.size());
    for (std::size_t i = 0; i < count; ++i)
      round.runs.push_back({runs_[i].bytes, ns(runs_[i].begin), ns(runs_[i].end)});
    round.end_ns = ns(end);
    return is_sound ? std::optional(std::move(round)) : std::nullopt;
  }

 private:
  struct TimedRun {
    std::uint64_t bytes, begin, end;  ///< ticks
  };
  const Cells cells_;
  const std::uint64_t partition_bytes_;
  std::uint64_t started_ = 0, started_ns_ = 0;
  std::vector<std::atomic<std::uint64_t>> ready_, began_;  ///< ticks, by cell
  std::vector<TimedRun> runs_;
  std::atomic<std::uint32_t> run_count_{0};
};

}  // namespace larklane::part
