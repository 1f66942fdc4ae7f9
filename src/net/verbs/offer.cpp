#include "net/verbs/offer.hpp"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <set>
#include <utility>

namespace larklane::verbs {
namespace {

constexpr std::uint8_t kLinkInfiniBand = 1;
constexpr std::uint8_t kLinkEthernet = 2;
constexpr std::uint16_t kUnicastLidLast = 0xbfff;

constexpr std::size_t kHeadBytes = 4 + 2 + 4 + 2 + 16, kQueueBytes = 2 * 4;

class Writer {
 public:
  template <std::unsigned_integral T>
  void put(T value) {
    for (std::size_t byte = 0; byte < sizeof(T); ++byte)
      bytes_.push_back(static_cast<std::byte>(value >> (8 * byte)));
  }
  void put(const QueueAddress& queue) {
    put(queue.number);
    put(queue.first_packet);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
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
  std::set<std::uint32_t> numbers{offer.read_queue.number};
  for (const QueueAddress& queue : offer.write_queues) numbers.insert(queue.number);
  const bool has_gid = std::any_of(offer.gid.begin(), offer.gid.end(), [](auto b) { return b; });
  const bool has_address =
      offer.is_ethernet ? has_gid : offer.lid <= kUnicastLidLast && (offer.lid != 0 || has_gid);
  return has_address && offer.mtu_code >= 1 && offer.mtu_code <= 5 && offer.reads_at_once >= 1 &&
         is_possible(offer.read_queue) && !offer.write_queues.empty() &&
         (offer.is_of_channel || offer.write_queues.size() == 1) &&
         std::all_of(offer.write_queues.begin(), offer.write_queues.end(),
                     [](const QueueAddress& queue) { return is_possible(queue); }) &&
         numbers.size() == 1 + offer.write_queues.size();
}

}  // namespace

std::vector<std::byte> encode(const Offer& offer) {
  Writer writer;
  writer.put(kOfferMagic);
  writer.put(kOfferVersion);
  writer.put(offer.is_ethernet ? kLinkEthernet : kLinkInfiniBand);
  writer.put(offer.mtu_code);
  writer.put(offer.reads_at_once);
  writer.put(static_cast<std::uint8_t>(offer.is_of_channel ? offer.write_queues.size() : 0));
  writer.put(offer.lid);
  for (const std::uint8_t byte : offer.gid) writer.put(byte);
  writer.put(offer.read_queue);
  for (const QueueAddress& queue : offer.write_queues) writer.put(queue);
  return writer.take();
}

Result<Offer> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes + 2 * kQueueBytes) return Errc::kProtocol;
  Reader reader(bytes.data());
  if (reader.get<std::uint32_t>() != kOfferMagic) return Errc::kProtocol;
  if (reader.get<std::uint16_t>() != kOfferVersion) return Errc::kProtocol;
  const auto link_layer = reader.get<std::uint8_t>();
  if (link_layer != kLinkInfiniBand && link_layer != kLinkEthernet) return Errc::kProtocol;
  Offer offer{};
  offer.is_ethernet = link_layer == kLinkEthernet;
  offer.mtu_code = reader.get<std::uint8_t>();
  offer.reads_at_once = reader.get<std::uint8_t>();
  const auto queues = reader.get<std::uint8_t>();
  offer.is_of_channel = queues != 0;
  const std::size_t writes = std::max<std::size_t>(queues, 1);
  if (writes > kWriteQueuesMax || bytes.size() != kHeadBytes + (1 + writes) * kQueueBytes)
    return Errc::kProtocol;
  offer.lid = reader.get<std::uint16_t>();
  for (std::uint8_t& byte : offer.gid) byte = reader.get<std::uint8_t>();
  offer.read_queue = reader.queue();
  for (std::size_t queue = 0; queue < writes; ++queue) offer.write_queues.push_back(reader.queue());
  if (!is_possible(offer)) return Errc::kProtocol;
  return offer;
}

}  // namespace larklane::verbs
