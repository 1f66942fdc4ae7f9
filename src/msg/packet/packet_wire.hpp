#pragma once
// What two lanes write into each other's memory, and what they say of it before. Wire layout:
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

/// What a record says to the layer above, besides its payload.
using PacketHeader = std::array<std::uint32_t, 3>;

/// A ring is one line for credit, then its cells, then room for a record that begins in the last
/// of them.
inline constexpr std::uint32_t kCellBytes = 64;

/// A record: this, and its payload behind it. 8 bytes of payload make 32, which is what verbs
/// sends inline.
struct RecordHead {
  static constexpr std::uint32_t kBytesBits = 16;
  static constexpr std::uint64_t kIsFollowed = std::uint64_t{1} << 63;

  std::uint32_t stamp;  ///< stamp_of() its position and the ring's generation
  std::uint32_t first;  ///< of the header
  /// Is the next record in the same write (1 bit); positions that the poster has freed (47 bits);
  /// payload bytes.
  std::uint64_t freed_and_bytes;
  std::array<std::uint32_t, 2> others;  ///< of the header

  PacketHeader header() const noexcept { return {first, others[0], others[1]}; }
  std::uint64_t freed() const noexcept { return (freed_and_bytes & ~kIsFollowed) >> kBytesBits; }
  bool is_followed() const noexcept { return (freed_and_bytes & kIsFollowed) != 0; }
  std::uint32_t payload_bytes() const noexcept {
    return static_cast<std::uint32_t>(freed_and_bytes & ((1u << kBytesBits) - 1));
  }
};
static_assert(sizeof(RecordHead) == 24);

/// The bytes of a head that its fields are in, by words that come from registers: who copies them
/// at once need not wait for the stores of halves.
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

/// Of a record that was written: the next one goes with it.
inline void set_followed(std::byte* record) noexcept {
  std::uint64_t word = 0;
  std::byte* const at = record + offsetof(RecordHead, freed_and_bytes);
  std::memcpy(&word, at, sizeof word);
  word |= RecordHead::kIsFollowed;
  std::memcpy(at, &word, sizeof word);
}

/// A header in 31 bits and a 1 on top, so never 0: the upper half of an immediate of 64 bits, which
/// spares a record its head. The third word is 0; the other two are short, the first one (10 bits)
/// or the second one (2 bits) more so.
namespace short_header {
inline constexpr std::uint32_t kBit = 1u << 31, kIsFirstLong = 1u << 30;
inline constexpr std::uint32_t kFirstBits = 10, kLongFirstBits = 28, kBits = 30;
/// Nothing: it does not fit.
std::optional<std::uint32_t> encode(const PacketHeader& header) noexcept;
PacketHeader decode(std::uint32_t word) noexcept;
}  // namespace short_header

/// How much a ring holds.
struct RingShape {
  static constexpr std::uint32_t kCellsMax = 1u << 16;  ///< bits of an immediate
  static constexpr std::uint32_t kRecordCellsMax = 1u << 10;

  std::uint32_t cells;         ///< a power of two, up to kCellsMax
  std::uint32_t record_cells;  ///< of its longest record, up to kRecordCellsMax and `cells`

  friend constexpr bool operator==(const RingShape&, const RingShape&) noexcept = default;
  bool is_legal() const noexcept;
  std::uint32_t index_of(std::uint64_t position) const noexcept {
    return static_cast<std::uint32_t>(position) & (cells - 1);
  }
  /// Positions count cells and never start again, from here on: so that each ring soon goes
  /// beyond 32 bits.
  std::uint64_t first_position() const noexcept {
    return (std::uint64_t{1} << 32) - 2 * std::uint64_t{cells};
  }
  constexpr std::uint32_t payload_bytes_max() const noexcept {
    return record_cells * kCellBytes - static_cast<std::uint32_t>(sizeof(RecordHead));
  }
  /// So many cells may be free untold, and the peer has room for a record all the same.
  std::uint32_t untold_max() const noexcept;
  /// Immediates of a pair that are no record's.
  std::uint32_t notifications() const noexcept { return kCellsMax - cells; }
  /// Lines of memory: of credit, of the cells, of the last one's record.
  std::uint32_t lines() const noexcept { return 1 + cells + record_cells - 1; }
};
static_assert(RingShape::kRecordCellsMax * kCellBytes - sizeof(RecordHead) <
              1u << RecordHead::kBytesBits);

inline std::uint32_t record_cells_of(std::uint32_t payload_bytes) noexcept {
  return (static_cast<std::uint32_t>(sizeof(RecordHead)) + payload_bytes + kCellBytes - 1) /
         kCellBytes;
}
inline std::uint64_t ring_offset_of(std::uint32_t cell) noexcept {
  return (std::uint64_t{1} + cell) * kCellBytes;
}
/// Never 0: what was never written, or was cleared, is no record.
inline std::uint32_t stamp_of(std::uint64_t position, std::uint32_t generation) noexcept {
  return (static_cast<std::uint32_t>(position) + generation) << 1 | 1;
}

inline std::uint32_t packet_immediate(std::uint16_t slot, std::uint32_t cell) noexcept {
  return std::uint32_t{slot} << 16 | cell;
}

/// A credit word: the low half of the positions that are freed, and what tells it from one of which
/// only a part has been stored.
namespace credit_word {
std::uint64_t make(std::uint64_t freed, std::uint32_t generation) noexcept;
/// None yet.
std::uint64_t none(std::uint32_t generation) noexcept;
/// The low half. Nothing: it is no such word.
std::optional<std::uint32_t> freed_low(std::uint64_t word, std::uint32_t generation) noexcept;
}  // namespace credit_word

/// The word behind the credit word, from then on: the owner of the peer's ring looks at it, so
/// records need no immediate.
inline constexpr std::uint64_t kWatched = 0x6465'6863'7461'776b;  // "kwatched"

/// One end of a pair, as the other one has to know it. Followed by the offer of its link.
struct PacketOffer {
  static constexpr std::uint32_t kMagic = 0x6b70'6b6c;  // "lkpk"
  static constexpr std::uint16_t kVersion = 6;
  static std::uint16_t headless_bytes_on(const net::Limits& network) noexcept;

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t slot;  ///< in immediates to it
  RingShape shape;
  std::uint32_t generation;
  std::uint16_t link_bytes;
  /// Payload of records that may come without a head (PacketLink); 0: none may.
  std::uint16_t headless_bytes;
  net::RemoteMemory ring;
};
static_assert(sizeof(PacketOffer) == 40);
inline constexpr std::size_t kPacketOfferBytesMax = sizeof(PacketOffer) + net::kOfferBytesMax;

std::vector<std::byte> write_packet_offer(PacketOffer offer, std::span<const std::byte> link);
/// What an offer says; `link` lies in its bytes.
struct ParsedPacketOffer {
  PacketOffer offer;
  std::span<const std::byte> link;
};
/// @errors kVersion; kProtocol: it makes no sense
Result<ParsedPacketOffer> parse_packet_offer(std::span<const std::byte> bytes);

}  // namespace larklane::msg
