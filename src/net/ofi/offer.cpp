#include "net/ofi/offer.hpp"

#include <fcntl.h>
#include <rdma/fabric.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/unique_fd.hpp"
#include "net/provider.hpp"

namespace larklane::ofi {
namespace {

constexpr std::uint32_t kMagic = 0x494f464c;  // "LFOI", little endian
constexpr std::uint16_t kVersion = 2;
/// More than any format has: sockaddr_storage is 128, a name of the shm provider 256.
constexpr std::size_t kAddressSpaceBytes = 1024;

struct Head {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t address_bytes;
  std::uint32_t address_format;
  std::int32_t process;
  std::uint64_t host;
  Ticket ticket;
  std::uint32_t reserved;
  std::uint32_t checksum;  ///< of all else
};
static_assert(sizeof(Head) == 64);

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

std::uint64_t this_host() {
  const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<std::byte, 64> text{};
  const ssize_t count = file ? ::read(file.get(), text.data(), text.size()) : 0;
  return count > 0 ? hash(std::span(text).first(static_cast<std::size_t>(count))) : 0;
}

std::vector<std::byte> encode_offer(const Origin& origin, const Ticket& ticket,
                                    std::span<const std::byte> address) {
  Head head{kMagic,
            kVersion,
            static_cast<std::uint16_t>(address.size()),
            origin.address_format,
            origin.process,
            origin.host,
            ticket,
            0,
            0};
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
  Offer offer{{head.address_format, head.host, head.process},
              head.ticket,
              std::vector<std::byte>(kAddressSpaceBytes)};
  std::memcpy(offer.address.data(), address.data(), address.size());
  return offer;
}

}  // namespace larklane::ofi
