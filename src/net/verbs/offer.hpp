#pragma once
// The offer of one side of a link to the other: where its queue pairs are. Travels in control
// records; little endian. Comes from another process, so nothing of it is believed unchecked.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"

namespace larklane::verbs {

inline constexpr std::uint32_t kOfferMagic = 0x62'76'6b'6c;  // "lkvb"
inline constexpr std::uint16_t kOfferVersion = 2;
inline constexpr std::uint32_t kWriteQueuesMax = 16;
inline constexpr std::uint32_t kNumberBits24 = 0xff'ffff;  ///< of queue pair and packet numbers

using Gid = std::array<std::uint8_t, 16>;

/// One queue pair of a link.
struct QueueAddress {
  std::uint32_t number;        ///< 1 to 2^24 - 1
  std::uint32_t first_packet;  ///< packet sequence number, 24 bits
  friend bool operator==(const QueueAddress&, const QueueAddress&) noexcept = default;
};

/// Thread safety: immutable.
struct Offer {
  bool is_ethernet;            ///< RoCE: addressed by the GID; else InfiniBand: by the LID
  std::uint8_t mtu_code;       ///< enum ibv_mtu: 1 (256 bytes) to 5 (4096)
  std::uint8_t reads_at_once;  ///< that this side serves on one queue pair; at least 1
  std::uint16_t lid;
  Gid gid;
  bool is_of_channel;  ///< it carries one, with the paper's immediates
  QueueAddress read_queue;
  std::vector<QueueAddress> write_queues;  ///< 1 to kWriteQueuesMax
  friend bool operator==(const Offer&, const Offer&) noexcept = default;
};

std::vector<std::byte> encode(const Offer& offer);
/// @errors kProtocol: no offer; of another version; or one with impossible values
Result<Offer> decode(std::span<const std::byte> bytes);

}  // namespace larklane::verbs
