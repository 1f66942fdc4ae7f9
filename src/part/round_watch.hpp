#pragma once
// When the cells of a sampled round became ready, and when runs of it went: what a Learner sees.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "part/layout.hpp"
#include "part/learner.hpp"
#include "part/own_lines.hpp"

namespace larklane::part {

/// What a thread has copied for all channels, in a unit of time: each copy delays what it makes
/// ready next.
struct CopyingThread {
  std::uint32_t number = 0;  ///< from 1 on
  std::uint64_t copied = 0;

  /// What copied_in() looks at is on its way.
  void own(const void* watch) noexcept {
    own_line(&copied);
    own_line(&place_of(watch));
  }
  /// Since it first made something ready in that round. A thread with more channels than places
  /// may be told less.
  std::uint64_t copied_in(const void* watch, std::uint64_t round) noexcept {
    Since& since = place_of(watch);
    if (since.watch != watch || since.round != round) [[unlikely]] {
      static std::atomic<std::uint32_t> threads{0};
      // relaxed: a number of its own is all that is wanted.
      if (number == 0) number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
      since = {watch, round, copied};
    }
    return copied - since.copied;
  }

 private:
  static constexpr std::size_t kPlaces = 64;
  struct Since {
    const void* watch = nullptr;
    std::uint64_t round = 0, copied = 0;
  };
  Since& place_of(const void* watch) noexcept {
    return places[reinterpret_cast<std::uintptr_t>(watch) / kLineBytes % kPlaces];
  }
  std::array<Since, kPlaces> places{};
};
inline constinit thread_local CopyingThread this_copying_thread{};  ///< ticks
inline constinit thread_local CopyingThread this_timed_thread{};    ///< ns

/// Thread safety: thread-safe between begin() and seen(), which belong to the thread that starts
/// and completes the round.
class RoundWatch {
 public:
  RoundWatch(const Cells& cells, std::uint64_t partition_bytes)
      : cells_(cells),
        partition_bytes_(partition_bytes),
        ready_(cells.count()),
        began_(cells.partitions() <= kPlacesMost ? cells.partitions() : cells.count()),
        runs_(began_.size()) {}

  void begin() {
    ++round_;
    // relaxed, here and below: the program orders Start before its Pready, and what a mover stores
    // comes before the count that completes the round.
    for (auto& ticks : began_) ticks.store(0, std::memory_order_relaxed);
    run_count_.store(0, std::memory_order_relaxed);
    own_first_lines(ready_.data(), ready_.size() * sizeof(ready_[0]));
    this_copying_thread.own(this);
    started_ = Instant::now();
  }
  void ready(Run run) {
    CopyingThread& caller = this_copying_thread;
    const std::uint64_t when = now_ticks() - caller.copied_in(this, round_) - started_.ticks;
    const std::uint64_t ready = when << kThreadBits | (caller.number & kThreads);
    const std::uint32_t first = cells_.of(run.first);
    const std::uint32_t last = run.count == 1 ? first : cells_.of(run.first + run.count - 1);
    for (std::uint32_t cell = first; cell <= last; ++cell)
      ready_[cell].store(ready, std::memory_order_relaxed);
  }
  /// A mover of this process takes `run`. @return when
  std::uint64_t began(Run run) {
    const std::uint64_t now = now_ticks();
    if (is_timed(run)) began_[place_of(run)].store(now, std::memory_order_relaxed);
    return now;
  }
  /// What this thread took at `began` keeps it no longer. The round may be over.
  static void left(std::uint64_t began) { this_copying_thread.copied += now_ticks() - began; }
  /// A mover of this process has moved `run`, and has not published it yet.
  void ended(Run run) {
    if (!is_timed(run)) return;
    const std::uint64_t begin = began_[place_of(run)].load(std::memory_order_relaxed);
    if (begin == 0) return;  // somebody else had taken it
    const std::uint32_t at = run_count_.fetch_add(1, std::memory_order_relaxed);
    if (at < runs_.size()) runs_[at] = {run.count * partition_bytes_, begin, now_ticks()};
  }
  /// The round, which is complete. Nothing: its times make no sense (a clock that went back).
  std::optional<SeenRound> seen() const {
    const Instant ended = Instant::now();
    const std::uint64_t end = ended.ticks, ns_passed = ended.ns - started_.ns;
    // An instant that was held up between its two clocks would bend all times of the round.
    if (end <= started_.ticks || ns_passed < kSlackMost * (started_.slack_ns + ended.slack_ns))
      return std::nullopt;
    const double ns_per_tick =
        static_cast<double>(ns_passed) / static_cast<double>(end - started_.ticks);
    bool is_sound = true;
    const auto ns = [&](std::uint64_t ticks) {
      is_sound = is_sound && ticks >= started_.ticks && ticks <= end;
      return static_cast<double>(ticks - started_.ticks) * ns_per_tick;
    };
    SeenRound round;
    for (const auto& cell : ready_) {
      const std::uint64_t ready = cell.load(std::memory_order_relaxed);
      // A time before the round's begin stays one.
      const auto ticks = static_cast<std::int64_t>(ready) >> kThreadBits;
      round.ready_ns.push_back(ns(started_.ticks + static_cast<std::uint64_t>(ticks)));
      round.threads.push_back(static_cast<std::uint32_t>(ready & kThreads));
    }
    const std::size_t count =
        std::min<std::size_t>(run_count_.load(std::memory_order_relaxed), runs_.size());
    for (std::size_t i = 0; i < count; ++i)
      round.runs.push_back({runs_[i].bytes, ns(runs_[i].begin), ns(runs_[i].end)});
    round.end_ns = ns(end);
    return is_sound ? std::optional(std::move(round)) : std::nullopt;
  }

 private:
  static constexpr std::uint64_t kSlackMost = 20;  ///< 5 %
  /// Of more partitions, only runs of whole cells are timed.
  static constexpr std::uint32_t kPlacesMost = 4096;
  /// Both clocks at once, but for `slack_ns`.
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

  const Cells cells_;
  const std::uint64_t partition_bytes_;
  std::uint64_t round_ = 0;  ///< of those that are watched
  Instant started_{};
  // By cell: ticks since the round's begin, and the thread, of 65,536. Together, since each line is
  // a cache miss.
  static constexpr int kThreadBits = 16;
  static constexpr std::uint64_t kThreads = (1u << kThreadBits) - 1;
  std::vector<std::atomic<std::uint64_t>> ready_;
  std::vector<std::atomic<std::uint64_t>> began_;  // ticks, by place
  std::vector<TimedRun> runs_;
  std::atomic<std::uint32_t> run_count_{0};
};

}  // namespace larklane::part
