#pragma once
// Slots: small partitions travel through library memory. Pready copies in and returns. A reader
// claims a run, copies it out, and stores its arrival marks. If the readers fall behind, Pready may
// push: copy into the receiver's buffer, past the slot. Model: tests/protocol/slots.pml.
//
// Thread safety: thread-safe.
// Invariants:
// 1. Round r uses marks and slots of its parity. The send of round r completes only when round r -
// 1 has been read, so in round r + 1 they are free.
// 2. A mark is set after its slot is full (release) and read before the slot is (acquire).
// 3. A claim carries its round: a reader that stalled in an older round claims nothing. After a
// round every claim word carries it.
// 4. The receiver's completion publishes that the round has been read: no reader touches the block
// then.
// 5. A partition is either marked or pushed. It is pushed only after the receiver's Start. The
// pushing thread sets the arrival mark, and a ready mark that readers ignore.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.hpp"
#include "part/protocol/block.hpp"
#include "part/protocol/last_comer.hpp"
#include "part/protocol/marked_prefix.hpp"
#include "part/protocol/own_lines.hpp"
#include "part/protocol/slot_window.hpp"

namespace larklane::part {

template <class P>
class SlotWriter {
 public:
  SlotWriter(const BlockView<P>& block, const BlockShape& shape) noexcept
      : block_(block), partitions_(shape.partitions), partition_bytes_(shape.partition_bytes) {}

  SlotWindow<P> window(std::uint64_t round) const noexcept {
    const std::uint64_t reach = kAheadBytes / std::max<std::uint64_t>(partition_bytes_, 1);
    const auto ahead = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(reach, 1, partitions_));
    return {.marks = block_.marks(round),
            .slots = block_.slot(round, 0),
            .partition_bytes = partition_bytes_,
            .mark = mark_of(round),
            .ahead = ahead,
            .ahead_end = partitions_ - ahead};
  }

  /// Start: prefetches the lines that Pready writes first, while the program computes.
  void own_first(std::uint64_t round) const noexcept {
    own_first_lines(block_.marks(round), partitions_);
    own_first_lines(block_.slot(round, 0), partitions_ * partition_bytes_);
  }

  /// Pready of `run`. fill(slot, packed_offset, length) copies from the send buffer.
  /// @errors kAlreadyReady: some were ready before, and a reader may be copying their slots; the
  /// others are marked
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
        block_.marks(round)[first].store(mark_of(round), std::memory_order_release);
    }
    return status;
  }

  /// May the receiver's buffer be written in `round`?
  bool is_open(std::uint64_t round) const {
    // acquire: the receiver's Start, and `accepted`; pairs with RecvSide::open()'s release.
    return block_.header().opened_round.load(std::memory_order_acquire) == round;
  }

  /// `partition` was pushed. @pre is_open(), and it was not ready before
  void pushed(std::uint64_t round, std::uint32_t partition) const {
    // relaxed: statistics.
    block_.header().pushed_count.fetch_add(1, std::memory_order_relaxed);
    // release: pairs with is_ready(). Readers of this round ignore this mark, so they never copy
    // the stale slot.
    block_.marks(round)[partition].store(pushed_mark_of(round), std::memory_order_release);
    // release: the copied bytes; pairs with Arrival's acquire.
    block_.arrived()[partition].store(mark_of(round), std::memory_order_release);
  }

  /// Is it marked or pushed?
  bool is_ready(std::uint64_t round, std::uint32_t partition) const {
    // acquire: the marking thread's Pready is over, so the program may reuse its buffer; pairs with
    // mark()'s and pushed()'s release.
    const std::uint8_t mark = block_.marks(round)[partition].load(std::memory_order_acquire);
    return mark == mark_of(round) || mark == pushed_mark_of(round);
  }

  bool all_ready(std::uint64_t round) {
    return ready_.covers(round, partitions_, [&](std::uint32_t p) { return is_ready(round, p); });
  }

  /// Is every partition of `round` ready, and has the round before been read?
  bool complete(std::uint64_t round) {
    return rounds_moved(block_, partitions_, round - 1) && all_ready(round);
  }

 private:
  /// relaxed: as in SlotWindow::mark_one().
  bool is_marked(std::uint64_t round, std::uint32_t partition) const {
    return block_.marks(round)[partition].load(std::memory_order_relaxed) == mark_of(round);
  }

  static constexpr std::uint64_t kAheadBytes = 1024;

  const BlockView<P>& block_;
  std::uint32_t partitions_;
  std::uint64_t partition_bytes_;
  MarkedPrefix<P> ready_;
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

  /// Reads the ready partitions of `run`, and ready ones beside it. empty(slot, packed_offset,
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

  /// Reads all ready partitions. Skips the claim words that are known to be read.
  template <class Empty>
  void drain_all(std::uint64_t round, Empty&& empty) {
    // relaxed: a hint that is only ever too low. Its stamp makes the hint of a straggler in an
    // older round count as none.
    const std::uint64_t hint = first_unread_.load(std::memory_order_relaxed);
    const std::uint32_t start = stamped::of_round(hint, round) ? stamped::bits(hint) : 0;
    std::uint32_t read_end = start;
    for (std::uint32_t c = start; c < claim_count_; ++c)
      if (drain_claim(round, c, ~0u, empty) && read_end == c) ++read_end;
    if (read_end != start)
      first_unread_.store(stamped::make(round, read_end), std::memory_order_relaxed);
  }

  /// All partitions have arrived: claim words that no reader claimed, since all was pushed, get
  /// this round.
  void end_round(std::uint64_t round) {
    // relaxed: the caller has acquired the arrival marks, which follow it.
    const std::uint64_t pushed = block_.header().pushed_count.load(std::memory_order_relaxed);
    if (pushed_seen_.exchange(pushed, std::memory_order_relaxed) == pushed) return;
    for (std::uint32_t c = 0; c < claim_count_; ++c)
      // acquire, release: pair with the readers'. No other thread writes it now: every partition
      // marked in this round has been claimed.
      if (!stamped::of_round(claims_[c].load(std::memory_order_acquire), round))
        claims_[c].store(stamped::make(round, all_of(c)), std::memory_order_release);
  }

  /// Has a reader claimed partitions that are not in the receive buffer yet?
  bool reading(std::uint64_t round) const {
    for (std::uint32_t c = 0; c < claim_count_; ++c) {
      // acquire: pairs with drain_claim()'s claim.
      const std::uint32_t claimed =
          claimed_in(claims_[c].load(std::memory_order_acquire), round).value_or(0);
      for (std::uint32_t bits = claimed; bits != 0; bits &= bits - 1) {
        const auto bit = static_cast<std::uint32_t>(__builtin_ctz(bits));
        // acquire: as in Arrival.
        if (block_.arrived()[c * 32 + bit].load(std::memory_order_acquire) != mark_of(round))
          return true;
      }
    }
    return false;
  }

 private:
  using Atomic64 = typename P::template Atomic<std::uint64_t>;

  /// The partitions claimed in `round`. The first reader may find the word of the round before:
  /// none claimed. nullopt: it carries a later round, and the caller is a straggler.
  static std::optional<std::uint32_t> claimed_in(std::uint64_t claim, std::uint64_t round) {
    if (stamped::of_round(claim, round)) return stamped::bits(claim);
    return stamped::of_round(claim, round - 1) ? std::optional(0u) : std::nullopt;
  }

  std::uint32_t all_of(std::uint32_t c) const {
    return low_mask(std::min(partitions_ - c * 32, 32u));
  }

  /// The ready ones among `bits`; bit 0 is partition 32 * c.
  std::uint32_t ready(std::uint64_t round, std::uint32_t c, std::uint32_t bits) const {
    std::uint32_t found = 0;
    for (; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<std::uint32_t>(__builtin_ctz(bits));
      // acquire: the slot behind the mark; pairs with SlotWriter::mark's release.
      if (block_.marks(round)[c * 32 + bit].load(std::memory_order_acquire) == mark_of(round))
        found |= 1u << bit;
    }
    return found;
  }

  /// If a `wanted` partition is ready, claims and copies all ready ones of this word. True if
  /// readers have claimed every partition of the word.
  template <class Empty>
  bool drain_claim(std::uint64_t round, std::uint32_t c, std::uint32_t wanted, Empty& empty) {
    const std::uint32_t all = all_of(c);
    auto& claim = claims_[c];
    // acquire: pairs with the other readers.
    std::uint64_t old = claim.load(std::memory_order_acquire);
    std::optional<std::uint32_t> taken = claimed_in(old, round);
    if (!taken) return false;
    std::uint32_t mine = all & ~*taken;
    if (mine == 0) return true;
    if ((wanted & all) != all && ready(round, c, wanted & mine) == 0) return false;
    const std::uint32_t full = ready(round, c, mine);
    do {
      taken = claimed_in(old, round);
      if (!taken) return false;
      mine = full & ~*taken;
      if (mine == 0) return *taken == all;
      // acq_rel, acquire: one reader for each bit; pairs with the other readers.
    } while (!claim.compare_exchange_weak(old, stamped::make(round, *taken | mine),
                                          std::memory_order_acq_rel, std::memory_order_acquire));
    for_each_run(mine, c * 32, [&](Run run) {
      const std::uint64_t offset = run.first * partition_bytes_;
      empty(block_.slot(round, offset), offset, run.count * partition_bytes_);
      for (std::uint32_t p = run.first; p < run.first + run.count; ++p)
        // release: the copied bytes; pairs with Arrival's acquire.
        block_.arrived()[p].store(mark_of(round), std::memory_order_release);
    });
    return (*taken | mine) == all;
  }

  const BlockView<P>& block_;
  std::uint32_t partitions_;
  std::uint64_t partition_bytes_;
  std::uint32_t claim_count_;
  std::unique_ptr<Atomic64[]> claims_;
  Atomic64 first_unread_{0};
  Atomic64 pushed_seen_{0};
};

}  // namespace larklane::part
