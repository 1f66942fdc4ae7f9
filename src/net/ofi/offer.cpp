#include "net/ofi/offer.hpp"

#include <rdma/fabric.h>

#include <cstring>

#include "net/provider.hpp"

namespace larklane::ofi {
namespace {

constexpr std::uint32_t kMagic = 0x494f464c;  // "LFOI", little endian
constexpr std::uint16_t kVersion = 3;
/// More than any format has: sockaddr_storage is 128.
constexpr std::size_t kAddressSpaceBytes = 1024;

struct Head {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t address_bytes;
  std::uint32_t address_format;
  Ticket ticket;
  std::uint32_t checksum;  ///< of all else
};
static_assert(sizeof(Head) == 48);

/// FNV-1a.
std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t value = 0xcbf29ce484222325) {
  for (const std::byte byte : bytes)
    value = (value ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  return value;
}

std::uint32_t checksum_of(Head head, std::span<const std::byte> address) {
  head.checksum = 0;
  const std::uint64_t all = hash(address, hash(std::as_bytes(std::span(&head, 1))));
  return static_cast<std::uint32_t>(all ^ (all >> 32));
}

bool is_text(std::uint32_t format) { return format == FI_ADDR_STR; }

/// Texts end; all else is as long as our own.
bool has_sane_length(const Head& head, std::span<const std::byte> address, const Head& own) {
  if (address.empty() || address.size() >= kAddressSpaceBytes) return false;
  if (!is_text(head.address_format)) return head.address_bytes == own.address_bytes;
  return std::memchr(address.data(), 0, address.size()) == &address.back();
}

}  // namespace

std::vector<std::byte> encode_offer(std::uint32_t address_format, const Ticket& ticket,
                                    std::span<const std::byte> address) {
  Head head{kMagic,         kVersion, static_cast<std::uint16_t>(address.size()),
            address_format, ticket,   0};
  head.checksum = checksum_of(head, address);
  std::vector<std::byte> offer(sizeof head + address.size());
  std::memcpy(offer.data(), &head, sizeof head);
  std::memcpy(offer.data() + sizeof head, address.data(), address.size());
  return offer;
}

Result<Offer> decode_offer(std::span<const std::byte> bytes, std::span<const std::byte> own) {
  Head head{};
  Head own_head{};
  if (bytes.size() < sizeof head || bytes.size() > net::kOfferBytesMax) return Errc::kProtocol;
  std::memcpy(&head, bytes.data(), sizeof head);
  std::memcpy(&own_head, own.data(), sizeof own_head);
  const auto address = bytes.subspan(sizeof head);
  if (head.magic != kMagic) return Errc::kProtocol;
  if (head.version != kVersion) return Errc::kVersion;
  if (head.address_bytes != address.size() || head.checksum != checksum_of(head, address))
    return Errc::kProtocol;
  if (head.address_format != own_head.address_format || !has_sane_length(head, address, own_head))
    return Errc::kProtocol;
  Offer offer{head.ticket, std::vector<std::byte>(kAddressSpaceBytes)};
  std::memcpy(offer.address.data(), address.data(), address.size());
  return offer;
}

}  // namespace larklane::ofi
