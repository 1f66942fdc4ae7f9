#pragma once
// The record of a sampled round for a planner: times of ready cells, and begins and ends of runs.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "part/policy/plan_cells.hpp"
#include "part/policy/planner.hpp"
#include "part/protocol/layout.hpp"
#include "part/protocol/own_lines.hpp"

namespace larklane::part {

/// Time that a thread has spent on copies for all channels, in ticks or ns: each copy delays the
/// partitions that it makes ready next. One line, since a mark in a sampled round misses the cache.
struct alignas(kLineBytes) CopyingThread {
  /// `copied` of the thread when it first made a partition ready in a channel's round.
  struct Since {
    const void* watch = nullptr;
    std::uint64_t round = 0, copied = 0;
  };
  std::uint64_t copied = 0;
  Since since;               ///< of the channel of the last call
  std::uint32_t number = 0;  ///< from 1 on

  /// Time copied since the thread first made a partition ready in that round. @param round  >= 1
  std::uint64_t copied_in(const void* watch, std::uint64_t round) noexcept {
    if (since.watch != watch) [[unlikely]]
      turn_to(watch);
    if (since.round != round) {
      since.round = round;
      since.copied = copied;
    }
    return copied - since.copied;
  }

 private:
  /// If a thread has more channels than places, it may return less than the true time.
  void turn_to(const void* watch) noexcept;
};
inline constinit thread_local CopyingThread this_copying_thread{};  ///< ticks
inline constinit thread_local CopyingThread this_timed_thread{};    ///< ns

/// Thread safety: thread-safe between begin() and seen(), which belong to the thread that starts
/// and completes the round.
class RoundWatch {
 public:
  RoundWatch(const PlanCells& cells, std::uint64_t partition_bytes)
      : cells_(cells),
        partition_bytes_(partition_bytes),
        ready_(cells.count()),
        began_(cells.partitions() <= kPlacesMost ? cells.partitions() : cells.count()),
        runs_(began_.size()) {}

  void begin() {
    ++round_;
    // relaxed, here and below: the program orders Start before its Pready. A mover's stores come
    // before the count that completes the round.
    for (auto& ticks : began_) ticks.store(0, std::memory_order_relaxed);
    run_count_.store(0, std::memory_order_relaxed);
    own_first_lines(ready_.data(), ready_.size() * sizeof(ready_[0]));
    own_line(&this_copying_thread);
    started_ = Instant::now();
  }
  /// The first ready() comes soon: loads its code and data into the caches.
  void warm();
  void ready(Run run);
  /// A mover of this process takes `run`. @return the time
  std::uint64_t began(Run run) {
    const std::uint64_t now = now_ticks();
    if (is_timed(run)) began_[place_of(run)].store(now, std::memory_order_relaxed);
    return now;
  }
  /// The move that began at `began` occupies this thread no longer. The round may be over.
  static void left(std::uint64_t began) { this_copying_thread.copied += now_ticks() - began; }
  /// A mover of this process has moved `run`, and has not published it yet.
  void ended(Run run) {
    if (!is_timed(run)) return;
    const std::uint64_t begin = began_[place_of(run)].load(std::memory_order_relaxed);
    if (begin == 0) return;  // the other side had taken it
    const std::uint32_t at = run_count_.fetch_add(1, std::memory_order_relaxed);
    if (at < runs_.size()) runs_[at] = {run.count * partition_bytes_, begin, now_ticks()};
  }
  /// The complete round. nullopt: its times are inconsistent (a clock that went back).
  std::optional<SeenRound> seen() const;

 private:
  static constexpr std::uint64_t kSlackMost = 20;  ///< 5 %
  /// With more partitions, only runs of whole cells are timed.
  static constexpr std::uint32_t kPlacesMost = 4096;
  /// Both clocks at one time, within `slack_ns`.
  struct Instant {
    std::uint64_t ns, ticks, slack_ns;
    static Instant now() noexcept {
      const std::uint64_t before = now_ns(), ticks = now_ticks(), after = now_ns();
      return {after, ticks, after - before};
    }
  };
  struct TimedRun {
    std::uint64_t bytes, begin, end;  ///< ticks
  };
  bool has_all_places() const noexcept { return began_.size() == cells_.partitions(); }
  bool is_timed(Run run) const noexcept {
    return has_all_places() || cells_.are_whole(run.first, run.count);
  }
  std::size_t place_of(Run run) const noexcept {
    return has_all_places() ? run.first : cells_.of(run.first);
  }

  const PlanCells cells_;
  const std::uint64_t partition_bytes_;
  std::uint64_t round_ = 0;  ///< number among the watched rounds
  Instant started_{};
  // By cell: ticks since the round's begin, and the thread's number modulo 65,536. In one word,
  // since each line is a cache miss.
  static constexpr int kThreadBits = 16;
  static constexpr std::uint64_t kThreads = (1u << kThreadBits) - 1;
  std::vector<std::atomic<std::uint64_t>> ready_;
  std::vector<std::atomic<std::uint64_t>> began_;  // ticks, by place
  std::vector<TimedRun> runs_;
  std::atomic<std::uint32_t> run_count_{0};
};

}  // namespace larklane::part
