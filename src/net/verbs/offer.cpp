#include "net/verbs/offer.hpp"

#include <algorithm>
#include <concepts>
#include <cstring>

namespace larklane::verbs {
namespace {

constexpr std::uint8_t kLinkInfiniBand = 1;
constexpr std::uint8_t kLinkEthernet = 2;
constexpr std::uint16_t kUnicastLidLast = 0xbfff;

class Writer {
 public:
  explicit Writer(std::byte* to) noexcept : to_(to) {}
  template <std::unsigned_integral T>
  void put(T value) noexcept {
    for (std::size_t byte = 0; byte < sizeof(T); ++byte) {
      *to_++ = static_cast<std::byte>(value >> (8 * byte));
    }
  }
  void put(const QueueAddress& queue) noexcept {
    put(queue.number);
    put(queue.first_packet);
  }

 private:
  std::byte* to_;
};

class Reader {
 public:
  explicit Reader(const std::byte* from) noexcept : from_(from) {}
  template <std::unsigned_integral T>
  T get() noexcept {
    std::uint64_t value = 0;
    for (std::size_t byte = 0; byte < sizeof(T); ++byte) {
      value |= std::to_integer<std::uint64_t>(*from_++) << (8 * byte);
    }
    return static_cast<T>(value);
  }
  QueueAddress queue() noexcept {
    const auto number = get<std::uint32_t>();
    return {number, get<std::uint32_t>()};
  }

 private:
  const std::byte* from_;
};

bool is_possible(const QueueAddress& queue) noexcept {
  return queue.number >= 1 && queue.number <= kNumberBits24 && queue.first_packet <= kNumberBits24;
}

bool is_possible(const Offer& offer) noexcept {
  const bool has_gid = std::any_of(offer.gid.begin(), offer.gid.end(), [](auto b) { return b; });
  const bool has_address =
      offer.is_ethernet ? has_gid : offer.lid <= kUnicastLidLast && (offer.lid != 0 || has_gid);
  return has_address && offer.mtu_code >= 1 && offer.mtu_code <= 5 && offer.reads_at_once >= 1 &&
         is_possible(offer.write_queue) && is_possible(offer.read_queue) &&
         offer.write_queue.number != offer.read_queue.number;
}

}  // namespace

std::array<std::byte, kOfferBytes> encode(const Offer& offer) noexcept {
  std::array<std::byte, kOfferBytes> bytes{};
  Writer writer(bytes.data());
  writer.put(kOfferMagic);
  writer.put(kOfferVersion);
  writer.put(offer.is_ethernet ? kLinkEthernet : kLinkInfiniBand);
  writer.put(offer.mtu_code);
  writer.put(offer.reads_at_once);
  writer.put(std::uint8_t{0});
  writer.put(offer.lid);
  for (const std::uint8_t byte : offer.gid) writer.put(byte);
  writer.put(offer.write_queue);
  writer.put(offer.read_queue);
  static_assert(kOfferBytes == 4 + 2 + 4 + 2 + 16 + 2 * 8 + 2);
  writer.put(std::uint16_t{0});
  return bytes;
}

Result<Offer> decode(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kOfferBytes) return Errc::kProtocol;
  Reader reader(bytes.data());
  if (reader.get<std::uint32_t>() != kOfferMagic) return Errc::kProtocol;
  if (reader.get<std::uint16_t>() != kOfferVersion) return Errc::kProtocol;
  const auto link_layer = reader.get<std::uint8_t>();
  if (link_layer != kLinkInfiniBand && link_layer != kLinkEthernet) return Errc::kProtocol;
  Offer offer{};
  offer.is_ethernet = link_layer == kLinkEthernet;
  offer.mtu_code = reader.get<std::uint8_t>();
  offer.reads_at_once = reader.get<std::uint8_t>();
  if (reader.get<std::uint8_t>() != 0) return Errc::kProtocol;
  offer.lid = reader.get<std::uint16_t>();
  for (std::uint8_t& byte : offer.gid) byte = reader.get<std::uint8_t>();
  offer.write_queue = reader.queue();
  offer.read_queue = reader.queue();
  if (reader.get<std::uint16_t>() != 0 || !is_possible(offer)) return Errc::kProtocol;
  return offer;
}

}  // namespace larklane::verbs
