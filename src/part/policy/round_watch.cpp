#include "part/policy/round_watch.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "part/request.hpp"

namespace larklane::part {

void CopyingThread::turn_to(const void* watch) noexcept {
  // On the heap: static thread-local memory is scarce (src/mpi/CMakeLists.txt).
  static thread_local const auto allocated = std::make_unique<std::array<Since, 64>>();
  std::array<Since, 64>& places = *allocated;
  static std::atomic<std::uint32_t> threads{0};
  // relaxed: the number only has to be unique.
  if (number == 0) number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  const auto place_of = [&places](const void* of) -> Since& {
    return places[reinterpret_cast<std::uintptr_t>(of) / kLineBytes % places.size()];
  };
  place_of(since.watch) = since;
  since = place_of(watch);
  if (since.watch != watch) since = {watch, 0, copied};
}

void RoundWatch::warm() {
  const std::uint64_t round = round_;
  round_ = 0;
  note_ready(*this, 0);
  round_ = round;
}

void RoundWatch::ready(Run run) {
  CopyingThread& caller = this_copying_thread;
  const std::uint64_t when = now_ticks() - caller.copied_in(this, round_) - started_.ticks;
  const std::uint64_t ready = when << kThreadBits | (caller.number & kThreads);
  const std::uint32_t first = cells_.of(run.first);
  const std::uint32_t last = run.count == 1 ? first : cells_.of(run.first + run.count - 1);
  for (std::uint32_t cell = first; cell <= last; ++cell)
    ready_[cell].store(ready, std::memory_order_relaxed);
}

void note_ready(RoundWatch& watch, std::uint32_t partition) noexcept {
  watch.ready({partition, 1});
}

std::optional<SeenRound> RoundWatch::seen() const {
  const Instant ended = Instant::now();
  const std::uint64_t end = ended.ticks, ns_passed = ended.ns - started_.ns;
  // If a thread stalls between the two clocks of an Instant, all times of the round are wrong.
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
    // Signed: a time before the round's begin stays before it.
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

}  // namespace larklane::part
