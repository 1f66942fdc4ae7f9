#pragma once
// The fast path of Pready of one partition in direct mode, and the state that it needs.

#include <atomic>
#include <cstdint>

#include "base/status.hpp"
#include "part/protocol/block.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::part {

/// The part of a larger group's root that a mark needs.
struct LeafGroup {
  std::uint32_t root = 0;
  std::uint64_t complete = 0;  ///< the root's value when the group may move, with the round shifted
                               ///< out
};

/// Result of a complete leaf. `waits` was the last touch of the channel: the group is not complete,
/// or not open. `expired`: the group's leaves no longer wait for each other.
enum class LeafMark : std::uint8_t { waits, completes, expired };

/// The group words of one round as Pready of single partitions needs them. Thread safety:
/// immutable.
template <class P>
struct WordWindow {
  const Cell* cells = nullptr;  ///< by partition
  WordLine<P>* words = nullptr;
  WordLine<P>* roots = nullptr;

  /// further(cell, old): the word was `old` before, and there may be a run to move. Otherwise the
  /// mark is the last touch of the channel: the receiver's Start may move and complete the round,
  /// and another thread of this process may free the request.
  /// @errors kAlreadyReady
  template <class Further>
  [[gnu::always_inline]] Status mark_one(std::uint32_t partition, Further&& further) const {
    const Cell& itself = cells[partition];
    const Cell cell = itself;
    const std::uint64_t bit = cell.bit_mask;
    // seq_cst: store-then-look against LastComer::open() and expire(); releases the caller's
    // partition, acquires the others'.
    const std::uint64_t old = words[cell.word].state.fetch_or(bit, std::memory_order_seq_cst);
    if ((old & bit) != 0) [[unlikely]]
      return Errc::kAlreadyReady;
    const bool complete = (cell.group_mask & ~(old | bit)) == 0;
    const bool travels = complete || (old & word_state::kExpired) != 0;
    if (travels && (cell.leaf_mask != 0 || (old & word_state::kOpen) != 0)) further(itself, old);
    return {};
  }

  /// A leaf of `group`, `unit` in its root, is complete; or it has expired, and so has its group.
  LeafMark mark_leaf(const LeafGroup& group, std::uint64_t unit) const {
    // seq_cst: as mark_one()'s; acquires the other leaves' partitions.
    const std::uint64_t now =
        roots[group.root].state.fetch_or(unit, std::memory_order_seq_cst) | unit;
    if (now << word_state::kTagBits == group.complete) [[likely]]
      return LeafMark::completes;
    constexpr std::uint64_t kBoth = word_state::kOpen | word_state::kExpired;
    return (now & kBoth) == kBoth ? LeafMark::expired : LeafMark::waits;
  }
};

}  // namespace larklane::part
