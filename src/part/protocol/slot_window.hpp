#pragma once
// Pready of a partition in a slot, and the state that it needs.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "part/protocol/own_lines.hpp"

namespace larklane::part {

/// The slots of one round as Pready of single partitions needs them. Thread safety: immutable.
template <class P>
struct SlotWindow {
  typename P::template Atomic<std::uint8_t>* marks = nullptr;
  std::byte* slots = nullptr;
  std::uint64_t partition_bytes = 0;
  std::uint8_t mark = 0;
  std::uint32_t ahead = 0;      ///< distance of the prefetch, in partitions
  std::uint32_t ahead_end = 0;  ///< from this partition on no line is left to prefetch

  /// No read-modify-write, no stall on the reader's cache.
  template <class Fill>
  [[gnu::always_inline]] Status mark_one(std::uint32_t partition, Fill&& fill) const {
    // relaxed: it only detects double marks by the program itself.
    if (marks[partition].load(std::memory_order_relaxed) == mark) [[unlikely]]
      return Errc::kAlreadyReady;
    const std::uint64_t offset = partition * partition_bytes;
    if (partition < ahead_end) {
      own_line(slots + offset + ahead * partition_bytes);
      own_line(marks + partition + ahead);
    }
    fill(slots + offset, offset, partition_bytes);
    // release: the slot is full; pairs with SlotReader's acquire.
    marks[partition].store(mark, std::memory_order_release);
    return {};
  }
};

}  // namespace larklane::part
