#pragma once
// The layout of a process of provider `shm` in memory that its peers map. They read it at any time,
// and may write nonsense into it. So nothing in it is believed, every index is masked or checked,
// and a value that decides over memory is copied before it is checked.
// Thread safety: atomics alone.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace larklane::shm {

inline constexpr std::size_t kNetworkLineBytes = 64;

/// One registered memory. A key is its generation and, in the low 16 bits, its row.
struct alignas(32) MemoryRow {
  static constexpr std::uint32_t kRowBits = 16;

  std::atomic<std::uint64_t> generation;  ///< of the key that is good now; 0: none
  std::atomic<std::uint64_t> base;        ///< address in its process
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> place;  ///< in a segment; 0: peers can't map it
};
static_assert(sizeof(MemoryRow) == 32);

/// A part of a segment: its number (from 1) and, in the low 48 bits, the offset. 0: none.
struct Place {
  static constexpr std::uint32_t kOffsetBits = 48;

  std::uint32_t segment;
  std::uint64_t offset;

  static constexpr Place of(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word >> kOffsetBits),
            word & ((std::uint64_t{1} << kOffsetBits) - 1)};
  }
  constexpr std::uint64_t word() const noexcept {
    return std::uint64_t{segment} << kOffsetBits | offset;
  }
};

/// At the beginning of every segment: its owner, and its number. Constant.
struct alignas(kNetworkLineBytes) SegmentHead {
  std::uint64_t nonce;
  std::uint32_t number;  ///< 0: the catalogue
};

struct SegmentRow {
  std::atomic<std::uint64_t> bytes;  ///< 0: there is none yet
  std::atomic<std::int32_t> fd;      ///< in its process
};

/// The segment that an offer leads to.
struct CatalogueArea {
  static constexpr std::uint32_t kSegments = 256;
  static constexpr std::uint32_t kRows = 1u << 14;
  static_assert(kRows <= 1u << MemoryRow::kRowBits);
  /// Of these: for pieces of segments alone, so that a new link's ring does not wait until others'
  /// memory is given back.
  static constexpr std::uint32_t kPieceRows = 1u << 10;

  SegmentHead head;
  SegmentRow segments[kSegments];  ///< number 1 is the first
  MemoryRow rows[kRows];
};

/// Immediates on their way to one endpoint. A slot is the immediate and, in its high half, the lap
/// in which it was written (from 1).
struct QueueArea {
  static constexpr std::uint32_t kSlotBits = 17;
  static constexpr std::uint32_t kSlots = 1u << kSlotBits;

  alignas(kNetworkLineBytes) std::atomic<std::uint64_t> head;  ///< all before it is heard
  // Senders' line.
  alignas(kNetworkLineBytes) std::atomic<std::uint64_t> tail;  ///< about where the next one goes
  std::atomic<std::uint64_t> endpoint;                         ///< its owner; 0: closed
  alignas(kNetworkLineBytes) std::atomic<std::uint64_t> slots[kSlots];

  static constexpr std::uint32_t lap_before(std::uint64_t position) noexcept {
    return static_cast<std::uint32_t>(position >> kSlotBits);
  }
  static constexpr std::uint64_t slot_of(std::uint64_t position, std::uint32_t immediate) noexcept {
    return std::uint64_t{lap_before(position) + 1} << 32 | immediate;
  }
  static constexpr std::uint32_t lap_in(std::uint64_t slot) noexcept {
    return static_cast<std::uint32_t>(slot >> 32);
  }
  std::atomic<std::uint64_t>& at(std::uint64_t position) noexcept {
    return slots[position & (kSlots - 1)];
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace larklane::shm
