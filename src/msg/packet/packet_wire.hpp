#pragma once
// Records, rings and offers that two lanes write to each other, and functions on them. Wire layout:
// docs/design/protocols/packets.md, which changes in the same commit.
// Pure functions; thread safety: immutable.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "net/provider.hpp"

namespace larklane::msg {

/// The part of a record's head that the layer above defines.
using PacketHeader = std::array<std::uint32_t, 3>;

/// A ring is one line for credit, then its cells, then room for a record that begins in the last
/// cell.
inline constexpr std::uint32_t kCellBytes = 64;

/// The head of a record; its payload follows. With 8 bytes of payload a record has 32 bytes, which
/// verbs sends inline.
struct RecordHead {
  static constexpr std::uint32_t kBytesBits = 16;
  static constexpr std::uint64_t kIsFollowed = std::uint64_t{1} << 63;
  /// Length of a mark, the last record before the ring grows. No payload is as long.
  static constexpr std::uint32_t kMarkBytes = (1u << kBytesBits) - 1;

  std::uint32_t stamp;  ///< stamp_of() its position and the ring's generation
  std::uint32_t first;  ///< word of the header
  /// Is the next record in the same write (1 bit); positions that the poster has freed (47 bits);
  /// payload bytes.
  std::uint64_t freed_and_bytes;
  std::array<std::uint32_t, 2> others;  ///< words of the header

  PacketHeader header() const noexcept { return {first, others[0], others[1]}; }
  std::uint64_t freed() const noexcept { return (freed_and_bytes & ~kIsFollowed) >> kBytesBits; }
  bool is_followed() const noexcept { return (freed_and_bytes & kIsFollowed) != 0; }
  std::uint32_t payload_bytes() const noexcept {
    return static_cast<std::uint32_t>(freed_and_bytes & kMarkBytes);
  }
};
static_assert(sizeof(RecordHead) == 24);

/// Writes a head as whole words from registers. A copy of them that follows at once need not wait
/// for stores of halves.
inline void write_record_head(std::byte* to, std::uint64_t freed_and_bytes, std::uint32_t stamp,
                              const PacketHeader& header) noexcept {
  const auto word = [](std::uint64_t first, std::uint64_t second) {
    return std::endian::native == std::endian::little ? first | second << 32 : first << 32 | second;
  };
  const std::uint64_t words[] = {word(stamp, header[0]), freed_and_bytes,
                                 word(header[1], header[2])};
  static_assert(sizeof words == sizeof(RecordHead));
  std::memcpy(to, words, sizeof words);
}

/// Marks a written record: the next one is in the same write.
inline void set_followed(std::byte* record) noexcept {
  std::uint64_t word = 0;
  std::byte* const at = record + offsetof(RecordHead, freed_and_bytes);
  std::memcpy(&word, at, sizeof word);
  word |= RecordHead::kIsFollowed;
  std::memcpy(at, &word, sizeof word);
}

/// A header in 31 bits below a 1, so never 0. As the upper half of an immediate of 64 bits it
/// replaces a record's head. The third word must be 0. The first two share 30 bits: 10 and 20, or
/// 28 and 2.
namespace short_header {
inline constexpr std::uint32_t kBit = 1u << 31, kIsFirstLong = 1u << 30;
inline constexpr std::uint32_t kFirstBits = 10, kLongFirstBits = 28, kBits = 30;
/// Nothing: the header does not fit.
std::optional<std::uint32_t> encode(const PacketHeader& header) noexcept;
PacketHeader decode(std::uint32_t word) noexcept;
}  // namespace short_header

/// Size of a ring. It may use `first_cells` of its cells until its sender has found them full.
struct RingShape {
  static constexpr std::uint32_t kCellsMax = 1u << 16;  ///< bits of an immediate
  static constexpr std::uint32_t kRecordCellsMax = 1u << 10;

  std::uint32_t cells;         ///< a power of two, up to kCellsMax
  std::uint32_t record_cells;  ///< of its longest record, up to kRecordCellsMax and `cells`
  /// A power of two from `record_cells` up; 0: the ring uses all cells from the beginning.
  std::uint32_t first_cells = 0;

  friend constexpr bool operator==(const RingShape&, const RingShape&) noexcept = default;
  bool is_legal() const noexcept;
  std::uint32_t index_of(std::uint64_t position) const noexcept {
    return index_in(cells, position);
  }
  /// Where `used` cells are in use.
  static std::uint32_t index_in(std::uint32_t used, std::uint64_t position) noexcept {
    return static_cast<std::uint32_t>(position) & (used - 1);
  }
  /// Positions count cells and never restart. They begin here, so that each ring soon goes beyond
  /// 32 bits.
  std::uint64_t first_position() const noexcept {
    return (std::uint64_t{1} << 32) - 2 * std::uint64_t{cells};
  }
  constexpr std::uint32_t payload_bytes_max() const noexcept {
    return record_cells * kCellBytes - static_cast<std::uint32_t>(sizeof(RecordHead));
  }
  /// Most freed cells that may be unreported: the peer still has room for a record.
  std::uint32_t untold_max() const noexcept;

  bool grows() const noexcept { return first_cells != 0; }
  std::uint32_t cells_at_first() const noexcept { return grows() ? first_cells : cells; }
  /// Cells that the sender fills before the ring grows: one more is left for the mark.
  std::uint32_t room_at_first() const noexcept { return grows() ? first_cells - 1 : cells; }
  /// As untold_max(), before the ring grows: the peer still has room for a record of
  /// assured_at_first() cells. For longer ones it makes the ring grow.
  std::uint32_t untold_max_at_first() const noexcept {
    return grows() ? first_cells / 2 - 1 : untold_max();
  }
  std::uint32_t assured_at_first() const noexcept {
    return room_at_first() - untold_max_at_first();
  }
  /// Cells that records before the mark may cover.
  std::uint32_t covered_at_first() const noexcept { return first_cells + record_cells - 1; }
  /// The first position of the grown ring, whose mark has position `mark`. It leads to the first
  /// cell that was never used. As many positions as cells were used, or more, are left out: so no
  /// freed position before the mark lets a record come as far as those cells.
  std::uint64_t grown_position(std::uint64_t mark) const noexcept {
    const std::uint64_t mask = cells - 1;
    return ((mark + 1 + mask) & ~mask) + covered_at_first();
  }
  /// Positions below this one lead to cells that were never used.
  std::uint64_t grown_limit(std::uint64_t mark) const noexcept {
    return grown_position(mark) - covered_at_first() + cells;
  }
  /// Number of a pair's immediates without a record.
  std::uint32_t notifications() const noexcept { return kCellsMax - cells; }
  /// Lines of memory: credit, cells, and the rest of a record in the last cell.
  std::uint32_t lines() const noexcept { return 1 + cells + record_cells - 1; }
};
static_assert(std::size_t{RingShape::kRecordCellsMax} * kCellBytes - sizeof(RecordHead) <
              RecordHead::kMarkBytes);

inline std::uint32_t record_cells_of(std::uint32_t payload_bytes) noexcept {
  return (static_cast<std::uint32_t>(sizeof(RecordHead)) + payload_bytes + kCellBytes - 1) /
         kCellBytes;
}
inline std::uint64_t ring_offset_of(std::uint32_t cell) noexcept {
  return (std::uint64_t{1} + cell) * kCellBytes;
}
/// Never 0: a cell that was never written, or was cleared, holds no record.
inline std::uint32_t stamp_of(std::uint64_t position, std::uint32_t generation) noexcept {
  return (static_cast<std::uint32_t>(position) + generation) << 1 | 1;
}

inline std::uint32_t packet_immediate(std::uint16_t slot, std::uint32_t cell) noexcept {
  return std::uint32_t{slot} << 16 | cell;
}

/// A credit word: the low half of the freed position, and a check against words that were stored
/// only in part.
namespace credit_word {
std::uint64_t make(std::uint64_t freed, std::uint32_t generation) noexcept;
/// A word without credit.
std::uint64_t none(std::uint32_t generation) noexcept;
/// The low half. Nothing: no credit word.
std::optional<std::uint32_t> freed_low(std::uint64_t word, std::uint32_t generation) noexcept;
}  // namespace credit_word

/// Value of the word behind the credit word once the peer polls its ring: from then on records to
/// it need no immediate.
inline constexpr std::uint64_t kWatched = 0x6465'6863'7461'776b;  // "kwatched"

/// Value of the third word of the credit line while the peer has records that found no room.
inline constexpr std::uint64_t kHasBacklog = 0x6b63'6162'7374'6177;  // "watsback"

/// One end of a pair, described for the other end. The offer of its network link follows.
struct PacketOffer {
  static constexpr std::uint32_t kMagic = 0x6b70'6b6c;  // "lkpk"
  static constexpr std::uint16_t kVersion = 7;
  static std::uint16_t headless_bytes_on(const net::Limits& network) noexcept;

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t slot;  ///< of the pair, in immediates to this end
  RingShape shape;
  std::uint32_t generation;
  std::uint16_t link_bytes;
  /// Payload of records that may come without a head (PacketLink); 0: none may.
  std::uint16_t headless_bytes;
  net::RemoteMemory ring;
};
static_assert(sizeof(PacketOffer) == 48);
inline constexpr std::size_t kPacketOfferBytesMax = sizeof(PacketOffer) + net::kOfferBytesMax;

std::vector<std::byte> write_packet_offer(PacketOffer offer, std::span<const std::byte> link);
/// A parsed offer; `link` points into the parsed bytes.
struct ParsedPacketOffer {
  PacketOffer offer;
  std::span<const std::byte> link;
};
/// @errors kVersion; kProtocol: malformed
Result<ParsedPacketOffer> parse_packet_offer(std::span<const std::byte> bytes);

}  // namespace larklane::msg
