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
  WordLine<P>* roots = nullptr;

  /// further(cell, old): the word was `old` before, and there is something to move. Otherwise the
  /// mark is the last touch of the channel: the receiver's Start may move and complete the round,
  /// and another thread of ours free the request.
  /// @errors kAlreadyReady
  template <class Further>
  [[gnu::always_inline]] Status mark_one(std::uint32_t partition, Further&& further) const {
    const Cell& itself = cells[partition];
    const Cell cell = itself;
    const std::uint64_t bit = cell.bit_mask;
    // seq_cst: store-then-look against Rendezvous::open() and expire(); releases the caller's
    // partition, acquires the others'.
    const std::uint64_t old = words[cell.word].state.fetch_or(bit, std::memory_order_seq_cst);
    if ((old & bit) != 0) [[unlikely]]
      return Errc::kAlreadyReady;
    const bool complete = (cell.group_mask & ~(old | bit)) == 0;
    const bool travels = complete || (old & word_state::kExpired) != 0;
    if (travels && (cell.is_leaf || (old & word_state::kOpen) != 0)) further(itself, old);
    return {};
  }

  /// Word `word`, a leaf of `group`, is complete. @return so is the group, and it may move: if not,
  /// this was the last touch of the channel
  bool mark_leaf(const LeafGroup& group, std::uint32_t word) const {
    const std::uint64_t unit = std::uint64_t{1} << (word - group.first_word);
    // seq_cst: as mark_one()'s; acquires the other leaves' partitions.
    const std::uint64_t old = roots[group.root].state.fetch_or(unit, std::memory_order_seq_cst);
    return (old & word_state::kOpen) != 0 && word_state::units(old | unit) == group.full;
  }
};

}  // namespace larklane::part
