#pragma once
// What Pready of one partition in direct mode does most of the time, and all that it needs for it.

#include <atomic>
#include <cstdint>

#include "base/status.hpp"
#include "part/block.hpp"
#include "part/layout.hpp"

namespace larklane::part {

/// The rendezvous words of one round as Pready of single partitions needs them. Thread safety:
/// immutable.
template <class P>
struct WordWindow {
  const Cell* cells = nullptr;  ///< by partition
  WordLine<P>* words = nullptr;

  /// further(cell, old): the word was `old` before, and there is something to move, or the mark is
  /// a second one. Otherwise the mark is the last touch of the channel: the receiver's Start may
  /// move and complete the round, and another thread of ours free the request.
  template <class Further>
  [[gnu::always_inline]] Status mark_one(std::uint32_t partition, Further&& further) const {
    const Cell cell = cells[partition];
    // seq_cst: store-then-look against Rendezvous::open() and expire(); releases the caller's
    // partition, acquires the others'.
    const std::uint64_t old =
        words[cell.word].state.fetch_or(cell.bit_mask, std::memory_order_seq_cst);
    const bool complete =
        ((word_state::units(old) | cell.bit_mask) & cell.group_mask) == cell.group_mask;
    const bool travels = complete || (old & word_state::kExpired) != 0;
    const bool moves = travels && (cell.is_leaf || (old & word_state::kOpen) != 0);
    if (!moves && (old & cell.bit_mask) == 0) [[likely]]
      return {};
    return further(cell, old);
  }
};

}  // namespace larklane::part
