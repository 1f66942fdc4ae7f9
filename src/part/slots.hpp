#pragma once
// Slots: partitions small enough to travel through library memory. Pready copies in and is done;
// the reader claims a run, copies out, and then the run has arrived. Model:
// tests/protocol/slots.pml.
//
// Thread safety: thread-safe but for the two start() functions, which belong to the side that calls
// Start. Invariants:
// 1. Round r uses the slots of its parity. The send of round r completes only when round r - 1 has
// been read, so Start(r + 1) finds
//    the slots of its parity free.
// 2. A ready bit is set after its slot is full (release) and read before the slot is (acquire).
// 3. A claim carries its round: a reader that stalled in an older round claims nothing.

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "part/block.hpp"
#include "part/layout.hpp"
#include "part/rendezvous.hpp"

namespace larklane::part {

template <class P>
class SlotWriter {
 public:
  SlotWriter(const BlockView<P>& block, const Layout& layout,
             std::uint64_t partition_bytes) noexcept
      : block_(block), layout_(layout), partition_bytes_(partition_bytes) {}

  void start(std::uint64_t round) const {
    // release: pairs with SlotReader::drain's acquire: the stamp comes before any ready bit of the
    // round.
    for (std::uint32_t w = 0; w < layout_.words().size(); ++w)
      block_.word(round, w).state.store(word_state::fresh(round), std::memory_order_release);
  }

  /// Pready of [first, first + count). fill(slot, packed_offset, length) copies from the send
  /// buffer.
  /// @errors kAlreadyReady: nothing is copied over a partition that may be under a reader's eyes
  template <class Fill>
  Status mark(std::uint64_t round, std::uint32_t first, std::uint32_t count, Fill&& fill) const {
    for (const std::uint32_t end = first + count; first < end;) {
      const std::uint32_t index = layout_.cell(first).word;
      const Word& word = layout_.words()[index];
      const std::uint32_t bit = first - word.first;
      const std::uint32_t taken = std::min(end - first, word.count - bit);
      const std::uint32_t bits = low_mask(taken) << bit;
      auto& state = block_.word(round, index).state;
      // relaxed: only double marks by the program itself are looked for.
      if ((word_state::units(state.load(std::memory_order_relaxed)) & bits) != 0)
        return Errc::kAlreadyReady;
      fill(block_.slot(round, word, index, first, partition_bytes_), first * partition_bytes_,
           taken * partition_bytes_);
      // release: the slot is full; pairs with SlotReader::drain's acquire.
      const std::uint64_t old = state.fetch_or(bits, std::memory_order_release);
      if ((word_state::units(old) & bits) != 0) return Errc::kAlreadyReady;
      first += taken;
    }
    return {};
  }

  /// Pready of one partition.
  template <class Fill>
  Status mark_one(std::uint64_t round, std::uint32_t partition, Fill&& fill) const {
    const Cell& cell = layout_.cell(partition);
    auto& state = block_.word(round, cell.word).state;
    // relaxed: as in mark().
    if ((word_state::units(state.load(std::memory_order_relaxed)) & cell.bit_mask) != 0)
        [[unlikely]]
      return Errc::kAlreadyReady;
    fill(block_.slot(round, layout_.words()[cell.word], cell.word, partition, partition_bytes_),
         partition * partition_bytes_, partition_bytes_);
    // release: as in mark().
    const std::uint64_t old = state.fetch_or(cell.bit_mask, std::memory_order_release);
    return (word_state::units(old) & cell.bit_mask) != 0 ? Errc::kAlreadyReady : Status{};
  }

  /// Every partition of `round` is in its slot, and the round before has been read.
  bool complete(std::uint64_t round) const {
    if (!rounds_moved(block_, layout_.partitions(), round - 1)) return false;
    for (std::uint32_t w = 0; w < layout_.words().size(); ++w) {
      // acquire: other threads' Pready are over, so the program may reuse its buffer; pairs with
      // mark()'s release.
      const std::uint64_t state = block_.word(round, w).state.load(std::memory_order_acquire);
      if (word_state::units(state) != layout_.words()[w].full_mask()) return false;
    }
    return true;
  }

 private:
  const BlockView<P>& block_;
  const Layout& layout_;
  std::uint64_t partition_bytes_;
};

template <class P>
class SlotReader {
 public:
  SlotReader(const BlockView<P>& block, const Layout& layout, std::uint64_t partition_bytes)
      : block_(block),
        layout_(layout),
        partition_bytes_(partition_bytes),
        claims_(std::make_unique<Atomic64[]>(layout.words().size())) {}

  void start(std::uint64_t round) {
    // release: pairs with drain()'s acquire on the claim.
    for (std::uint32_t w = 0; w < layout_.words().size(); ++w)
      claims_[w].store(stamped::make(round, 0), std::memory_order_release);
  }

  /// Read whatever is ready in the words that cover `run`. empty(slot, packed_offset, length)
  /// copies into the receive buffer.
  template <class Empty>
  void drain(std::uint64_t round, Run run, Empty&& empty) {
    const std::uint32_t last = layout_.cell(run.first + run.count - 1).word;
    for (std::uint32_t w = layout_.cell(run.first).word; w <= last; ++w)
      drain_word(round, w, empty);
  }

  /// The same for all words, past those known to be read.
  template <class Empty>
  void drain_all(std::uint64_t round, Empty&& empty) {
    const auto words = static_cast<std::uint32_t>(layout_.words().size());
    // relaxed: a hint, only ever too low; stamped, so that one left by a straggler of an older
    // round counts as none.
    const std::uint64_t hint = first_unread_.load(std::memory_order_relaxed);
    const std::uint32_t start = stamped::of_round(hint, round) ? stamped::bits(hint) : 0;
    std::uint32_t read_end = start;
    for (std::uint32_t w = start; w < words; ++w)
      if (drain_word(round, w, empty) && read_end == w) ++read_end;
    if (read_end != start)
      first_unread_.store(stamped::make(round, read_end), std::memory_order_relaxed);
  }

  /// Some reader has claimed what is not in the receive buffer yet.
  bool reading(std::uint64_t round) const {
    std::uint64_t claimed = (round - 1) * layout_.partitions();
    for (std::uint32_t w = 0; w < layout_.words().size(); ++w) {
      // acquire: pairs with drain_word()'s claim.
      const std::uint64_t claim = claims_[w].load(std::memory_order_acquire);
      if (!stamped::of_round(claim, round)) return true;
      claimed += static_cast<std::uint64_t>(__builtin_popcount(stamped::bits(claim)));
    }
    // acquire: pairs with publish_moved's fetch_add.
    return block_.header().moved_count.load(std::memory_order_acquire) < claimed;
  }

 private:
  using Atomic64 = typename P::template Atomic<std::uint64_t>;

  /// True when every partition of the word has been claimed by some reader.
  template <class Empty>
  bool drain_word(std::uint64_t round, std::uint32_t index, Empty& empty) {
    const Word& word = layout_.words()[index];
    // acquire: the slots behind the ready bits; pairs with SlotWriter::mark's release.
    const std::uint64_t state = block_.word(round, index).state.load(std::memory_order_acquire);
    if (!word_state::of_round(state, round)) return false;
    const std::uint32_t ready = word_state::units(state);
    auto& claim = claims_[index];
    // acquire: pairs with start()'s release.
    std::uint64_t old = claim.load(std::memory_order_acquire);
    std::uint32_t mine;
    do {
      if (!stamped::of_round(old, round)) return false;
      mine = ready & ~stamped::bits(old);
      if (mine == 0) return stamped::bits(old) == word.full_mask();
      // acq_rel, acquire: one reader for each bit; pairs with the other readers.
    } while (!claim.compare_exchange_weak(old, old | mine, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
    for_each_run(mine, word.first, [&](Run run) {
      empty(block_.slot(round, word, index, run.first, partition_bytes_),
            run.first * partition_bytes_, run.count * partition_bytes_);
      publish_moved(block_, run);
    });
    return (stamped::bits(old) | mine) == word.full_mask();
  }

  const BlockView<P>& block_;
  const Layout& layout_;
  std::uint64_t partition_bytes_;
  std::unique_ptr<Atomic64[]> claims_;
  Atomic64 first_unread_{0};
};

}  // namespace larklane::part
