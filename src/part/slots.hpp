#pragma once
// Slots: partitions small enough to travel through library memory. Pready copies in and is done;
// the reader claims a run, copies out, and then the run has arrived. Model:
// tests/protocol/slots.pml.
//
// Thread safety: thread-safe but for SlotReader::start(), which belongs to the thread that calls
// Start. Invariants:
// 1. Round r uses marks and slots of its parity. The send of round r completes only when round
// r - 1 has been read, so in round r + 1 they are free.
// 2. A mark is set after its slot is full (release) and read before the slot is (acquire).
// 3. A claim carries its round: a reader that stalled in an older round claims nothing.

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "part/block.hpp"
#include "part/rendezvous.hpp"

namespace larklane::part {

template <class P>
class SlotWriter {
 public:
  SlotWriter(const BlockView<P>& block, const BlockShape& shape) noexcept
      : block_(block), partitions_(shape.partitions), partition_bytes_(shape.partition_bytes) {}

  /// The sender's Start: nothing to clear, only addresses to remember for Pready.
  void start(std::uint64_t round) noexcept {
    marks_ = &block_.mark(round, 0);
    slots_ = block_.slot(round, 0);
    full_ = slot_mark::of_round(round);
  }

  /// Pready of one partition, of the round that start() began: no read-modify-write, no stall on
  /// the reader's cache.
  template <class Fill>
  [[gnu::always_inline]] Status mark_one(std::uint32_t partition, Fill&& fill) const {
    // relaxed: as in is_marked().
    if (marks_[partition].load(std::memory_order_relaxed) == full_) [[unlikely]]
      return Errc::kAlreadyReady;
    const std::uint64_t offset = partition * partition_bytes_;
    fill(slots_ + offset, offset, partition_bytes_);
    // release: as in mark().
    marks_[partition].store(full_, std::memory_order_release);
    return {};
  }

  /// Pready of `run`. fill(slot, packed_offset, length) copies from the send buffer.
  /// @errors kAlreadyReady: those that were ready before, whose slots may be under a reader's eyes;
  /// the others are marked
  template <class Fill>
  Status mark(std::uint64_t round, Run run, Fill&& fill) const {
    Status status;
    const std::uint32_t end = run.first + run.count;
    for (std::uint32_t first = run.first; first < end;) {
      if (is_marked(round, first)) [[unlikely]] {
        status = Errc::kAlreadyReady;
        ++first;
        continue;
      }
      std::uint32_t next = first + 1;
      while (next < end && !is_marked(round, next)) ++next;
      const std::uint64_t offset = first * partition_bytes_;
      fill(block_.slot(round, offset), offset, (next - first) * partition_bytes_);
      for (; first < next; ++first)
        // release: the slot is full; pairs with SlotReader's acquire.
        block_.mark(round, first).store(slot_mark::of_round(round), std::memory_order_release);
    }
    return status;
  }

  /// Every partition of `round` is in its slot, and the round before has been read.
  bool complete(std::uint64_t round) {
    if (!rounds_moved(block_, partitions_, round - 1)) return false;
    // relaxed: a hint of this side's thread in Wait or Test, only ever too low.
    const std::uint64_t hint = first_unmarked_.load(std::memory_order_relaxed);
    std::uint32_t first = stamped::of_round(hint, round) ? stamped::bits(hint) : 0;
    // acquire: other threads' Pready are over, so the program may reuse its buffer; pairs with
    // mark()'s release.
    while (first < partitions_ &&
           block_.mark(round, first).load(std::memory_order_acquire) == slot_mark::of_round(round))
      ++first;
    first_unmarked_.store(stamped::make(round, first), std::memory_order_relaxed);
    return first == partitions_;
  }

 private:
  using Atomic64 = typename P::template Atomic<std::uint64_t>;
  using Atomic8 = typename P::template Atomic<std::uint8_t>;

  /// relaxed: only double marks by the program itself are looked for.
  bool is_marked(std::uint64_t round, std::uint32_t partition) const {
    return block_.mark(round, partition).load(std::memory_order_relaxed) ==
           slot_mark::of_round(round);
  }

  const BlockView<P>& block_;
  std::uint32_t partitions_;
  std::uint64_t partition_bytes_;
  // Written by start(), which the program orders before its Pready.
  Atomic8* marks_ = nullptr;
  std::byte* slots_ = nullptr;
  std::uint8_t full_ = 0;
  Atomic64 first_unmarked_{0};
};

template <class P>
class SlotReader {
 public:
  SlotReader(const BlockView<P>& block, const BlockShape& shape)
      : block_(block),
        partitions_(shape.partitions),
        partition_bytes_(shape.partition_bytes),
        claim_count_(shape.mode == Mode::slots ? (shape.partitions + 31) / 32 : 0),
        claims_(std::make_unique<Atomic64[]>(claim_count_)) {}

  void start(std::uint64_t round) {
    // release: pairs with claim()'s acquire.
    for (std::uint32_t c = 0; c < claim_count_; ++c)
      claims_[c].store(stamped::make(round, 0), std::memory_order_release);
  }

  /// Read `run` as far as it is ready, and what is ready beside it. empty(slot, packed_offset,
  /// length) copies into the receive buffer.
  template <class Empty>
  void drain(std::uint64_t round, Run run, Empty&& empty) {
    const std::uint32_t end = run.first + run.count;
    for (std::uint32_t c = run.first / 32; c * 32 < end; ++c) {
      const std::uint32_t from = std::max(run.first, c * 32) - c * 32;
      const std::uint32_t to = std::min(end - c * 32, 32u);
      drain_claim(round, c, low_mask(to) & ~low_mask(from), empty);
    }
  }

  /// Read all that is ready, past what is known to be read.
  template <class Empty>
  void drain_all(std::uint64_t round, Empty&& empty) {
    // relaxed: a hint, only ever too low; stamped, so that one left by a straggler of an older
    // round counts as none.
    const std::uint64_t hint = first_unread_.load(std::memory_order_relaxed);
    const std::uint32_t start = stamped::of_round(hint, round) ? stamped::bits(hint) : 0;
    std::uint32_t read_end = start;
    for (std::uint32_t c = start; c < claim_count_; ++c)
      if (drain_claim(round, c, ~0u, empty) && read_end == c) ++read_end;
    if (read_end != start)
      first_unread_.store(stamped::make(round, read_end), std::memory_order_relaxed);
  }

  /// Some reader has claimed what is not in the receive buffer yet.
  bool reading(std::uint64_t round) const {
    std::uint64_t claimed = (round - 1) * partitions_;
    for (std::uint32_t c = 0; c < claim_count_; ++c) {
      // acquire: pairs with drain_claim()'s claim.
      const std::uint64_t claim = claims_[c].load(std::memory_order_acquire);
      if (!stamped::of_round(claim, round)) return true;
      claimed += static_cast<std::uint64_t>(__builtin_popcount(stamped::bits(claim)));
    }
    // acquire: pairs with publish_moved's fetch_add.
    return block_.header().moved_count.load(std::memory_order_acquire) < claimed;
  }

 private:
  using Atomic64 = typename P::template Atomic<std::uint64_t>;

  /// Those of `bits` that are ready, bit 0 being partition 32 * c.
  std::uint32_t ready(std::uint64_t round, std::uint32_t c, std::uint32_t bits) const {
    std::uint32_t found = 0;
    for (; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<std::uint32_t>(__builtin_ctz(bits));
      // acquire: the slot behind the mark; pairs with SlotWriter::mark's release.
      if (block_.mark(round, c * 32 + bit).load(std::memory_order_acquire) ==
          slot_mark::of_round(round))
        found |= 1u << bit;
    }
    return found;
  }

  /// If one of the `wanted` is ready, claim and copy all that is. True when every partition of this
  /// claim word has been claimed by some reader.
  template <class Empty>
  bool drain_claim(std::uint64_t round, std::uint32_t c, std::uint32_t wanted, Empty& empty) {
    const std::uint32_t all = low_mask(std::min(partitions_ - c * 32, 32u));
    auto& claim = claims_[c];
    // acquire: pairs with start()'s release.
    std::uint64_t old = claim.load(std::memory_order_acquire);
    if (!stamped::of_round(old, round)) return false;
    std::uint32_t mine = all & ~stamped::bits(old);
    if (mine == 0) return true;
    if ((wanted & all) != all && ready(round, c, wanted & mine) == 0) return false;
    const std::uint32_t full = ready(round, c, mine);
    do {
      if (!stamped::of_round(old, round)) return false;
      mine = full & ~stamped::bits(old);
      if (mine == 0) return stamped::bits(old) == all;
      // acq_rel, acquire: one reader for each bit; pairs with the other readers.
    } while (!claim.compare_exchange_weak(old, old | mine, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
    for_each_run(mine, c * 32, [&](Run run) {
      const std::uint64_t offset = run.first * partition_bytes_;
      empty(block_.slot(round, offset), offset, run.count * partition_bytes_);
      publish_moved(block_, run);
    });
    return (stamped::bits(old) | mine) == all;
  }

  const BlockView<P>& block_;
  std::uint32_t partitions_;
  std::uint64_t partition_bytes_;
  std::uint32_t claim_count_;
  std::unique_ptr<Atomic64[]> claims_;
  Atomic64 first_unread_{0};
};

}  // namespace larklane::part
