#include "msg/packet/packet_wire.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace larklane::msg {

bool RingShape::is_legal() const noexcept {
  if (!std::has_single_bit(cells) || cells > kCellsMax || record_cells < 1 ||
      record_cells > kRecordCellsMax || record_cells > cells)
    return false;
  // A grown ring has as many cells that were never used as others, and no fewer.
  return !grows() || (std::has_single_bit(first_cells) && first_cells >= 2 &&
                      first_cells >= record_cells && covered_at_first() <= cells / 2);
}

std::uint32_t RingShape::untold_max() const noexcept {
  const std::uint32_t half = std::max(cells / 2, 1u);
  return std::min(half - 1, cells - record_cells);
}

namespace short_header {

std::optional<std::uint32_t> encode(const PacketHeader& header) noexcept {
  for (const std::uint32_t first_bits : {kFirstBits, kLongFirstBits})
    if (header[0] >> first_bits == 0 && header[1] >> (kBits - first_bits) == 0 && header[2] == 0)
      return kBit | (first_bits == kLongFirstBits ? kIsFirstLong : 0) | header[1] << first_bits |
             header[0];
  return std::nullopt;
}

PacketHeader decode(std::uint32_t word) noexcept {
  const std::uint32_t first_bits = (word & kIsFirstLong) != 0 ? kLongFirstBits : kFirstBits;
  const std::uint32_t words = word & (kIsFirstLong - 1);
  return {words & ((1u << first_bits) - 1), words >> first_bits, 0};
}

}  // namespace short_header

namespace credit_word {
namespace {

/// One to one, and each bit of the half affects most of its bytes. So no mixture of a new word and
/// an old one has a half that fits, whether by beginning and end or by any other parts.
std::uint32_t check_of(std::uint32_t low, std::uint32_t generation) noexcept {
  std::uint32_t mixed = (low ^ generation) * 0x9e37'79b1u;  // odd: the golden ratio's
  mixed ^= mixed >> 15;
  return mixed * 0x85eb'ca77u;
}

}  // namespace

std::uint64_t make(std::uint64_t freed, std::uint32_t generation) noexcept {
  const auto low = static_cast<std::uint32_t>(freed);
  return std::uint64_t{check_of(low, generation)} << 32 | low;
}

std::uint64_t none(std::uint32_t generation) noexcept {
  return make(0, generation) ^ std::uint64_t{1} << 63;
}

std::optional<std::uint32_t> freed_low(std::uint64_t word, std::uint32_t generation) noexcept {
  const auto low = static_cast<std::uint32_t>(word);
  if (make(low, generation) != word) return std::nullopt;
  return low;
}

}  // namespace credit_word

std::uint16_t PacketOffer::headless_bytes_on(const net::Limits& network) noexcept {
  const bool fits = network.has_wide_immediates && network.small_bytes_max <= UINT16_MAX;
  return fits ? static_cast<std::uint16_t>(network.small_bytes_max) : std::uint16_t{0};
}

std::vector<std::byte> write_packet_offer(PacketOffer offer, std::span<const std::byte> link) {
  offer.link_bytes = static_cast<std::uint16_t>(link.size());
  std::vector<std::byte> bytes(sizeof offer + link.size());
  std::memcpy(bytes.data(), &offer, sizeof offer);
  std::copy(link.begin(), link.end(), bytes.begin() + sizeof offer);
  return bytes;
}

Result<ParsedPacketOffer> parse_packet_offer(std::span<const std::byte> bytes) {
  ParsedPacketOffer parsed{};
  PacketOffer& offer = parsed.offer;
  if (bytes.size() < sizeof offer) return Errc::kProtocol;
  std::memcpy(&offer, bytes.data(), sizeof offer);
  if (offer.magic != PacketOffer::kMagic) return Errc::kProtocol;
  if (offer.version != PacketOffer::kVersion) return Errc::kVersion;
  parsed.link = bytes.subspan(sizeof offer);
  if (parsed.link.size() != offer.link_bytes || offer.link_bytes > net::kOfferBytesMax ||
      !offer.shape.is_legal())
    return Errc::kProtocol;
  return parsed;
}

}  // namespace larklane::msg
