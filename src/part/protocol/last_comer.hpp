#pragma once
// Direct mode on one host: the last operation on a group moves its data. Model:
// tests/protocol/last_comer.pml.
//
// Every word has unit bits (partitions, or the leaves of a larger group), `open` and `expired`.
// Pready, the receiver's Start and an expiry are each ONE seq_cst read-modify-write. The operation
// that makes `open and (group complete or expired)` true moves the ready partitions. A Pready that
// finds it true moves its own. No side signals the other, or waits for the other to enter MPI. An
// expired leaf is a word of its own.
//
// Thread safety: thread-safe, except clear() and open(), which belong to the side that calls Start.
// Invariants:
// 1. The sender's Start of the round before clears a word's parity, when both sides are done with
// its last use.
// 2. Exactly one caller gets each ready partition of a round, and only after `open`.
// 3. A mover's last touch is `moved_count`; round r is complete on both sides at r * S.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "base/status.hpp"
#include "part/protocol/block.hpp"
#include "part/protocol/layout.hpp"
#include "part/protocol/mark_run.hpp"
#include "part/protocol/marked_prefix.hpp"
#include "part/protocol/own_lines.hpp"
#include "part/protocol/plans.hpp"
#include "part/protocol/word_window.hpp"

namespace larklane::part {

/// Joins adjacent runs, so that the mover makes one copy instead of one per word.
template <class Move>
class RunJoiner {
 public:
  explicit RunJoiner(Move& move) noexcept : move_(move) {}
  ~RunJoiner() {
    if (run_.count != 0) move_(run_);
  }
  void add(Run run) {
    if (run_.count != 0 && run_.first + run_.count == run.first) {
      run_.count += run.count;
      return;
    }
    if (run_.count != 0) move_(run_);
    run_ = run;
  }

 private:
  Move& move_;
  Run run_{0, 0};
};

/// Direct mode: publishes that `run` of `round`, not empty, is in the receive buffer. The mover's
/// last touch of the channel.
/// @param marks, moved_count  the block's
template <class Atomic8, class Atomic64>
[[gnu::always_inline]] inline void publish_moved(Atomic8* marks, Atomic64& moved_count,
                                                 std::uint64_t round, Run run) {
  Atomic8* const mark = marks + run.first;
  // release, both: the copied bytes; pairs with Arrival's acquire.
  if (run.count == 1) [[likely]]
    mark->store(mark_of(round), std::memory_order_release);
  else
    mark_run(mark, mark + run.count, mark_of(round));
  // acq_rel: release the bytes and marks to both sides' completion (acquire in rounds_moved);
  // acquire chains the movers.
  moved_count.fetch_add(run.count, std::memory_order_acq_rel);
}
template <class P>
void publish_moved(const BlockView<P>& block, std::uint64_t round, Run run) {
  publish_moved(block.arrived(), block.header().moved_count, round, run);
}

/// Has every partition of rounds 1 to `round` been moved?
template <class Atomic64>
bool rounds_moved(const Atomic64& moved_count, std::uint32_t partitions, std::uint64_t round) {
  // acquire: pairs with publish_moved's fetch_add.
  return moved_count.load(std::memory_order_acquire) >= round * partitions;
}
template <class P>
bool rounds_moved(const BlockView<P>& block, std::uint32_t partitions, std::uint64_t round) {
  return rounds_moved(block.header().moved_count, partitions, round);
}

template <class P>
class LastComer {
 public:
  /// A word before and after a read-modify-write.
  struct Change {
    std::uint64_t old, now;
  };

  LastComer(const BlockView<P>& block, const Plans<P>& plans) noexcept
      : block_(block), plans_(plans) {}

  /// The sender's Start of the round before: makes the words of `round` fresh.
  void clear(std::uint64_t round) const {
    // release: pairs with the read-modify-writes of that round; the receiver reaches them only
    // after this round's moves.
    const Layout& layout = plans_.of(round);
    for (std::uint32_t w = 0; w < layout.words().size(); ++w)
      block_.word(round, w).state.store(word_state::fresh(round), std::memory_order_release);
    for (std::uint32_t r = 0; r < layout.roots().size(); ++r)
      block_.root(round, r).state.store(word_state::fresh(round), std::memory_order_release);
  }

  /// The sender's Start: prefetches the lines that Pready touches first, while the program
  /// computes.
  void own_first(std::uint64_t round) const noexcept {
    const Layout& layout = plans_.of(round);
    own_first_lines(layout.cells().data(), layout.cells().size() * sizeof(Cell));
    own_first_lines(&block_.word(round, 0), layout.words().size() * sizeof(WordLine<P>));
  }

  /// Pready of [first, first + count). Calls move(Run) for each run that the caller must move now.
  /// @errors kAlreadyReady: some were ready before; the others are marked
  template <class Move>
  Status mark(std::uint64_t round, std::uint32_t first, std::uint32_t count, Move&& move) const {
    // seq_cst: store-then-look against open() and expire(); releases the caller's partition,
    // acquires the others'.
    const auto set = [](WordLine<P>& line, std::uint32_t, std::uint32_t bits) {
      const std::uint64_t old = line.state.fetch_or(bits, std::memory_order_seq_cst);
      return Change{old, old | bits};
    };
    return mark_by(round, first, count, set, move);
  }

  /// The same by set(line, word, bits): one read-modify-write that sets `bits`, and may set
  /// `expired`. @return its Change
  template <class Set, class Move>
  Status mark_by(std::uint64_t round, std::uint32_t first, std::uint32_t count, Set&& set,
                 Move&& move) const {
    Status status;
    const Layout& layout = plans_.of(round);
    RunJoiner<std::remove_reference_t<Move>> runs(move);
    for (const std::uint32_t end = first + count; first < end;) {
      const std::uint32_t index = layout.cells()[first].word;
      const Word word = layout.words()[index];  // its mark may be the last touch of the channel
      const std::uint32_t bit = first - word.first;
      const std::uint32_t taken = std::min(end - first, word.count - bit);
      const std::uint32_t bits = low_mask(taken) << bit;
      const Change change = set(block_.word(round, index), index, bits);
      if ((word_state::units(change.old) & bits) != 0) status = Errc::kAlreadyReady;
      after_mark(round, word, change, runs);
      first += taken;
    }
    return status;
  }

  /// The group that begins at partition `first` of `round`. @pre the round is not over
  LeafGroup leaf_group(std::uint64_t round, std::uint32_t first) const noexcept {
    const Layout& layout = plans_.of(round);
    const std::uint32_t index = layout.words()[layout.cells()[first].word].root;
    if (index == kNoRoot) return {};
    const Root& root = layout.roots()[index];
    return {index, (word_state::kOpen | low_mask(root.word_count)) << word_state::kTagBits};
  }

  /// The state that Pready of one partition needs in `round`.
  WordWindow<P> window(std::uint64_t round) const noexcept {
    return {plans_.of(round).cells().data(), &block_.word(round, 0), &block_.root(round, 0)};
  }

  /// WordWindow::mark_one()'s `further`.
  template <class Move>
  void mark_further(std::uint64_t round, const Cell& cell, std::uint64_t old, Move&& move) const {
    RunJoiner<std::remove_reference_t<Move>> runs(move);
    const Word word = plans_.of(round).words()[cell.word];  // as in mark_by()
    after_mark(round, word, {old, old | cell.bit_mask}, runs);
  }

  /// The receiver's Start: its buffer may be written from now on.
  template <class Move>
  void open(std::uint64_t round, Move&& move) const {
    // If Start came before the match, the helper opens the first round. The program doesn't wait
    // for it: once all words are open it may complete the round and start others.
    const auto held = plans_.hold(round);
    const Layout& layout = *held;
    RunJoiner<std::remove_reference_t<Move>> runs(move);
    for (std::uint32_t w = 0; w < layout.words().size(); ++w) {
      const Word& word = layout.words()[w];
      if (word.root != kNoRoot) {
        if (word.unit == 0) open_root(layout, round, word.root, runs);
        continue;
      }
      // seq_cst: store-then-look against mark() and expire(); publishes Accepted, acquires the
      // ready partitions.
      const std::uint64_t old =
          block_.word(round, w).state.fetch_or(word_state::kOpen, std::memory_order_seq_cst);
      hand_on_line(&block_.word(round, w));  // to a Pready, or to the sender's Start
      const std::uint32_t ready = word_state::units(old);
      const std::uint32_t mine = old & word_state::kExpired ? ready : word.complete_groups(ready);
      for_each_run(mine, word.first, [&](Run run) { runs.add(run); });
    }
  }

  /// May every group of `round` travel once it is complete? @pre the round is not over here
  bool is_open(std::uint64_t round) const {
    const Layout& layout = plans_.of(round);
    const auto last = static_cast<std::uint32_t>(layout.words().size() - 1);
    const std::uint32_t root = layout.words()[last].root;
    const auto& line = root == kNoRoot ? block_.word(round, last) : block_.root(round, root);
    // acquire: pairs with open(), which opens this one last.
    const std::uint64_t state = line.state.load(std::memory_order_acquire);
    return word_state::of_round(state, round) && (state & word_state::kOpen) != 0;
  }

  /// From now on no partition of word `index` waits for its group. No effect if `round` is over, or
  /// if the word has expired.
  template <class Move>
  void expire(std::uint64_t round, std::uint32_t index, Move&& move) const {
    const auto held = plans_.hold(round);
    if (!held || index >= held->words().size()) return;
    RunJoiner<std::remove_reference_t<Move>> runs(move);
    expire_word(*held, round, index, runs);
  }

  /// The same for all words.
  template <class Move>
  void expire_all(std::uint64_t round, Move&& move) const {
    const auto held = plans_.hold(round);
    if (!held) return;
    RunJoiner<std::remove_reference_t<Move>> runs(move);
    for (std::uint32_t w = 0; w < held->words().size(); ++w) expire_word(*held, round, w, runs);
  }

  /// A receiver needs `run`: once all of `run` is ready, none of it waits for its group. No effect
  /// if `round` is over.
  template <class Move>
  void ask(std::uint64_t round, Run run, Move&& move) const {
    if (!plans_.may_wait(round)) return;
    const auto held = plans_.hold(round);
    if (!held || run.count == 0) return;
    const std::uint32_t first = held->cells()[run.first].word;
    const std::uint32_t last = held->cells()[run.first + run.count - 1].word;
    for (std::uint32_t w = first; w <= last; ++w)
      if (!is_ready(*held, round, w, run)) return;
    RunJoiner<std::remove_reference_t<Move>> runs(move);
    for (std::uint32_t w = first; w <= last; ++w)
      if (waits(*held, round, w, run)) expire_word(*held, round, w, runs);
  }

  /// Has every partition of `round` been marked?
  bool all_marked(std::uint64_t round) const {
    const Layout& layout = plans_.of(round);
    const auto count = static_cast<std::uint32_t>(layout.words().size());
    return marked_.covers(round, count, [&](std::uint32_t w) {
      // relaxed: statistics only.
      const std::uint64_t state = block_.word(round, w).state.load(std::memory_order_relaxed);
      return word_state::units(state) == layout.words()[w].full_mask();
    });
  }

 private:
  template <class Runs>
  void after_mark(std::uint64_t round, const Word& word, Change change, Runs& runs) const {
    const std::uint32_t before = word_state::units(change.old);
    const std::uint32_t now = word_state::units(change.now);
    if (word.root == kNoRoot || (change.old & word_state::kExpired) != 0)
      for_each_run(triggered_by_mark(word, change), word.first, [&](Run run) { runs.add(run); });
    else if (now == word.full_mask() && now != before)
      complete_leaf(round, word, runs);
  }

  /// Partitions of a word that this mark must move.
  std::uint32_t triggered_by_mark(const Word& word, Change change) const {
    if ((change.old & word_state::kOpen) == 0) return 0;
    const std::uint32_t before = word_state::units(change.old);
    const std::uint32_t now = word_state::units(change.now);
    if ((change.old & word_state::kExpired) != 0) return now & ~before;
    const bool expires = (change.now & word_state::kExpired) != 0;
    return (expires ? now : word.complete_groups(now)) & ~word.complete_groups(before);
  }

  /// Bits of the part of `run` that is in `word`.
  static std::uint32_t bits_of(Run run, const Word& word) noexcept {
    const std::uint32_t first = std::max(run.first, word.first);
    const std::uint32_t end = std::min(run.first + run.count, word.first + word.count);
    return low_mask(end - first) << (first - word.first);
  }

  /// Units of word `index`; 0 if it carries another round.
  std::uint32_t units_of(std::uint64_t round, std::uint32_t index) const {
    // relaxed: it only decides whether to look further.
    const std::uint64_t state = block_.word(round, index).state.load(std::memory_order_relaxed);
    return word_state::of_round(state, round) ? word_state::units(state) : 0;
  }
  bool is_ready(const Layout& layout, std::uint64_t round, std::uint32_t index, Run run) const {
    return (bits_of(run, layout.words()[index]) & ~units_of(round, index)) == 0;
  }
  /// Does a partition of `run` in word `index` wait for others of its group?
  bool waits(const Layout& layout, std::uint64_t round, std::uint32_t index, Run run) const {
    const Word& word = layout.words()[index];
    return word.root != kNoRoot ||
           (bits_of(run, word) & ~word.complete_groups(units_of(round, index))) != 0;
  }

  /// Sets `added` unless the word carries another round, has expired, or is `full`.
  /// @return the value before; nullopt: the word is unchanged
  static std::optional<std::uint64_t> expire_line(WordLine<P>& line, std::uint64_t round,
                                                  std::uint64_t added, std::uint32_t full) {
    // acquire: pairs with mark() and open().
    std::uint64_t old = line.state.load(std::memory_order_acquire);
    do {
      if (!word_state::of_round(old, round) || (old & word_state::kExpired) != 0 ||
          word_state::units(old) == full)
        return std::nullopt;
      // seq_cst: store-then-look against mark() and open(). acquire on failure: as the load above.
    } while (!line.state.compare_exchange_weak(old, old | added, std::memory_order_seq_cst,
                                               std::memory_order_acquire));
    return old;
  }

  template <class Runs>
  void expire_word(const Layout& layout, std::uint64_t round, std::uint32_t index,
                   Runs& runs) const {
    const Word& word = layout.words()[index];
    if (word.root != kNoRoot) return expire_leaf(layout, round, index, runs);
    const auto old =
        expire_line(block_.word(round, index), round, word_state::kExpired, word.full_mask());
    if (!old || (*old & word_state::kOpen) == 0) return;
    const std::uint32_t units = word_state::units(*old);
    for_each_run(units & ~word.complete_groups(units), word.first, [&](Run run) { runs.add(run); });
  }

  /// The group's other leaves still travel as a whole, each by itself.
  template <class Runs>
  void expire_leaf(const Layout& layout, std::uint64_t round, std::uint32_t index,
                   Runs& runs) const {
    const Word& leaf = layout.words()[index];
    const Root& root = layout.roots()[leaf.root];
    WordLine<P>& top = block_.root(round, leaf.root);
    const auto old = expire_line(top, round, word_state::kExpired, low_mask(root.word_count));
    if (old && (*old & word_state::kOpen) != 0)
      add_leaves(layout, root, word_state::units(*old), runs);
    // acquire: as in expire_line(); the operation that opened the root published Accepted.
    const std::uint64_t state = top.state.load(std::memory_order_acquire);
    constexpr std::uint64_t kBoth = word_state::kOpen | word_state::kExpired;
    if (!word_state::of_round(state, round) || (state & kBoth) != kBoth) return;
    if (const auto ready = expire_line(block_.word(round, index), round, kBoth, leaf.full_mask()))
      for_each_run(word_state::units(*ready), leaf.first, [&](Run run) { runs.add(run); });
  }

  template <class Runs>
  void complete_leaf(std::uint64_t round, const Word& leaf, Runs& runs) const {
    const Layout& layout = plans_.of(round);
    const Root root = layout.roots()[leaf.root];  // copied before the last touch, as in mark_by()
    // seq_cst: as in mark(); acquires the other leaves' partitions.
    const std::uint64_t old =
        block_.root(round, leaf.root)
            .state.fetch_or(std::uint64_t{1} << leaf.unit, std::memory_order_seq_cst);
    if ((old & word_state::kOpen) == 0) return;
    const std::uint32_t now = word_state::units(old) | (1u << leaf.unit);
    if ((old & word_state::kExpired) != 0)
      add_leaves(layout, root, 1u << leaf.unit, runs);
    else if (now == low_mask(root.word_count))
      add_leaves(layout, root, now, runs);
  }

  template <class Runs>
  void open_root(const Layout& layout, std::uint64_t round, std::uint32_t index, Runs& runs) const {
    const Root& root = layout.roots()[index];
    // seq_cst: as in open().
    const std::uint64_t old =
        block_.root(round, index).state.fetch_or(word_state::kOpen, std::memory_order_seq_cst);
    const std::uint32_t units = word_state::units(old);
    if ((old & word_state::kExpired) != 0 || units == low_mask(root.word_count))
      add_leaves(layout, root, units, runs);
  }

  template <class Runs>
  static void add_leaves(const Layout& layout, const Root& root, std::uint32_t units, Runs& runs) {
    for (; units != 0; units &= units - 1) {
      const auto unit = static_cast<std::uint32_t>(__builtin_ctz(units));
      const Word& leaf = layout.words()[root.first_word + unit];
      runs.add({leaf.first, leaf.count});
    }
  }

  const BlockView<P>& block_;
  const Plans<P>& plans_;
  mutable MarkedPrefix<P> marked_;  // of words
};

}  // namespace larklane::part
