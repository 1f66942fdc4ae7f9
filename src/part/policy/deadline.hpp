#pragma once
// Deadlines of words, for policies that need them.
//
// A word's deadline is a time after its first mark. Then the word expires: the ready partitions
// leave, and each later partition travels by itself (Temucin et al., CLUSTER'23, section IV-D). No
// thread sleeps for a deadline, and none is woken: the next Pready sees it, or a waiting thread of
// either side.
//
// A word may expire before its deadline (docs/design/adr/0008). A mark is in time if it comes
// before the deadline. TimedMarks knows the number of marks in time in each of the last rounds.
// The mark that makes this round's number reach their median expires the word: later marks are
// expected to be late, and so nothing is gained by waiting for them.
//
// To change the length: the policy states it (PolicyNeeds::deadline_ns), and `timer` has its
// default in timer.cpp (kDeadlineNs). The median is History's, below.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "part/protocol/block.hpp"
#include "part/protocol/last_comer.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::part {

/// Number of words of so many partitions. Each word has one deadline, so each group has its own
/// word.
constexpr std::uint64_t words_of(std::uint32_t partitions) noexcept {
  return (partitions + std::uint64_t{kUnitsPerWord} - 1) / kUnitsPerWord;
}

/// The sender's marks. All rounds have the same groups, none larger than a word; times are of one
/// clock on both sides. Thread safety: mark() is thread-safe; start() belongs to the thread that
/// calls Start.
template <class P>
class TimedMarks {
 public:
  /// @param after  time from the first mark to the deadline
  TimedMarks(const BlockView<P>& block, std::uint32_t words, std::uint64_t after)
      : block_(block), after_(after), words_(words) {}

  /// Start of `round`, which makes the words of the next one fresh.
  void start(std::uint64_t round) {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      WordLine<P>& line = block_.word(round + 1, w);
      // relaxed, all of these: the round before is complete, and its marks come before that. Marks
      // of the next round come much later.
      const std::uint64_t counts = line.counts.load(std::memory_order_relaxed);
      if (round > 1) words_[w].note(counts);
      line.first_mark.store(0, std::memory_order_relaxed);
      line.counts.store(0, std::memory_order_relaxed);
    }
  }

  /// Pready of a run at the time `now`, which is not 0.
  /// @param busy  time that the calling thread has spent on moves in this round; it makes no mark
  /// late
  template <class Move>
  Status mark(const LastComer<P>& last_comer, std::uint64_t round, Run run, std::uint64_t now,
              std::uint64_t busy, Move&& move) const {
    const auto set = [=, this](WordLine<P>& line, std::uint32_t word, std::uint32_t bits) {
      // The line is not touched after the mark, which may end the round. relaxed, until there: it
      // only decides whether a partition waits longer.
      const auto count = static_cast<std::uint64_t>(std::popcount(bits));
      const std::uint64_t before = marked(line.counts.fetch_add(count, std::memory_order_relaxed));
      std::uint64_t first = line.first_mark.load(std::memory_order_relaxed);
      if (first == 0) line.first_mark.store(first = now, std::memory_order_relaxed);
      if (is_over(first, now - busy))
        line.counts.fetch_add(count << kLateShift, std::memory_order_relaxed);
      if (is_over(first, now)) return add(line, bits | word_state::kExpired);
      const std::uint64_t awaited = words_[word].awaited;
      return before + count + kNear < awaited ? add(line, bits) : add_awaited(line, bits, awaited);
    };
    return last_comer.mark_by(round, run.first, run.count, set, move);
  }

 private:
  static constexpr int kLateShift = 32;
  /// A thread takes its number before its mark, and marks may come in another order. So the last
  /// kNear numbers count units exactly. If a smaller number's mark follows them, only the deadline
  /// expires the word.
  static constexpr std::uint64_t kNear = 8;
  static std::uint64_t marked(std::uint64_t counts) {
    return counts & ((std::uint64_t{1} << kLateShift) - 1);
  }
  using Change = typename LastComer<P>::Change;

  static Change add(WordLine<P>& line, std::uint64_t added) {
    // seq_cst: as LastComer::mark()'s.
    const std::uint64_t old = line.state.fetch_or(added, std::memory_order_seq_cst);
    return {old, old | added};
  }
  /// Expires the word if the awaited marks are all there. For the last marks only: many threads at
  /// once would repeat a compare-and-swap for longer than a deadline.
  static Change add_awaited(WordLine<P>& line, std::uint32_t bits, std::uint64_t awaited) {
    std::uint64_t old = line.state.load(std::memory_order_relaxed), now = 0;
    do {
      now = old | bits;
      const auto ready = static_cast<std::uint64_t>(std::popcount(word_state::units(now)));
      if (ready >= awaited) now |= word_state::kExpired;
      // seq_cst: as LastComer::mark()'s. relaxed on failure: it is tried again.
    } while (!line.state.compare_exchange_weak(old, now, std::memory_order_seq_cst,
                                               std::memory_order_relaxed));
    return {old, now};
  }
  bool is_over(std::uint64_t first, std::uint64_t now) const {
    return now > first && now - first >= after_;
  }

  /// Of one word: the number of marks in time in each of the last kRounds rounds, kAll if none was
  /// late. `awaited` is their median, once kRoundsMin rounds are known.
  struct History {
    static constexpr std::uint64_t kRounds = 5, kRoundsMin = 3;
    static constexpr std::uint64_t kAll = ~std::uint64_t{0};  ///< no early expiry
    std::uint64_t awaited = kAll;
    std::uint64_t count = 0;
    std::array<std::uint64_t, kRounds> in_time{};

    void note(std::uint64_t counts) {
      const std::uint64_t late = counts >> kLateShift;
      in_time[count++ % kRounds] = late == 0 ? kAll : marked(counts) - late;
      if (count < kRoundsMin) return;
      const auto known = static_cast<std::ptrdiff_t>(std::min(count, kRounds));
      auto sorted = in_time;
      std::sort(sorted.begin(), sorted.begin() + known);
      awaited = sorted[static_cast<std::size_t>(known / 2)];
    }
  };

  const BlockView<P>& block_;
  const std::uint64_t after_;
  std::vector<History> words_;
};

/// A waiting thread's look for expired deadlines. Thread safety: thread-safe.
template <class P>
class DeadlineWatch {
 public:
  DeadlineWatch(const BlockView<P>& block, std::uint32_t words, std::uint64_t after)
      : block_(block), words_(words), after_(after) {}

  /// Start.
  void start() noexcept { next_look_.store(0, std::memory_order_relaxed); }  // relaxed: a hint

  /// In the active `round`. Calls move(Run) for each run that the caller must move now.
  template <class Move>
  void look(const LastComer<P>& last_comer, std::uint64_t round, std::uint64_t now, Move&& move) {
    // relaxed: it only decides how often to look.
    if (now < next_look_.load(std::memory_order_relaxed)) return;
    next_look_.store(now + after_ / kLooks, std::memory_order_relaxed);
    for (std::uint32_t w = 0; w < words_; ++w) {
      const WordLine<P>& line = block_.word(round, w);
      // acquire: this side knows the groups of an open word; pairs with open().
      const std::uint64_t state = line.state.load(std::memory_order_acquire);
      if (!word_state::of_round(state, round) ||
          (state & (word_state::kOpen | word_state::kExpired)) != word_state::kOpen)
        continue;
      // relaxed: the next look sees a mark that is not visible yet.
      const std::uint64_t first = line.first_mark.load(std::memory_order_relaxed);
      if (first != 0 && now > first && now - first >= after_) last_comer.expire(round, w, move);
    }
  }

 private:
  static constexpr std::uint64_t kLooks = 4;  ///< within a deadline; each fetches the lines

  const BlockView<P>& block_;
  const std::uint32_t words_;
  const std::uint64_t after_;
  typename P::template Atomic<std::uint64_t> next_look_{0};
};

/// A sender's state for deadlines. Thread safety: as its members.
template <class P>
struct Timed {
  /// @param after  time from a word's first mark to its deadline
  Timed(const BlockView<P>& block, std::uint32_t words, std::uint64_t after)
      : marks(block, words, after), watch(block, words, after) {}
  /// Start of `round`.
  void start(std::uint64_t round) {
    marks.start(round);
    watch.start();
  }

  TimedMarks<P> marks;
  DeadlineWatch<P> watch;
};

}  // namespace larklane::part
