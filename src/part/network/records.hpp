#pragma once
// Control records of channels over a network, and the words that both sides write into each other's
// memory. Fixed widths, no padding: they cross process boundaries. Wire layout:
// docs/design/protocols/network.md, which changes in the same commit.

#include <cstdint>

#include "net/provider.hpp"
#include "part/records.hpp"

namespace larklane::part::record {

enum class NetType : std::uint16_t {
  offer = 16,
  ready = 17,
  init = 18,
  accept = 19,
  close = 20,
  fail = 21,  ///< Fail
};

/// From either side, once a link: this end, for the other side to connect; `bytes` bytes follow.
struct NetOffer {
  std::uint32_t bytes;
  std::uint32_t link;
  net::RemoteMemory greeting;  ///< 8 bytes that a greeting reads
};

/// If 0: this end is connected, so the peer may use the link, or greet. A greeting side sends it
/// after the greeting's answer. The greeted side then sends it once more. Otherwise neither side
/// may use the link.
struct NetReady {
  std::int32_t code;  ///< Errc; 0: connected
  std::int32_t detail;
  std::uint32_t link;
  std::uint32_t reserved;
};

/// Sender to receiver, once a channel, in the order of the Psend_init calls.
struct NetInit {
  std::uint64_t channel;  ///< the sender's number, never reused
  std::uint64_t context_high, context_low;
  std::int32_t source, tag;
  std::uint64_t partition_bytes;
  std::uint32_t partitions;
  std::uint32_t generation;       ///< of the words that the receiver stores into `control`
  net::RemoteMemory data;         ///< the packed bytes
  net::RemoteMemory control;      ///< credit, demand, then from kFinWords on one FIN a cell
  std::uint32_t link;             ///< the link of the channel
  std::uint32_t demand_slot;      ///< 1 + the slot in immediates of demands; 0: takes no demands
  std::uint64_t demand_after_ns;  ///< time without arrivals before the receiver demands
};

/// Receiver to sender: the receive is matched, and the link is ready.
struct NetAccept {
  std::uint64_t channel;
  std::uint32_t generation;  ///< of the notices
  std::uint32_t slot;        ///< in the immediates
  net::RemoteMemory data;
  net::RemoteMemory notices;  ///< one a cell; then, with demands, the sender's last answer
};

/// One side has freed its request, and nothing of it is in flight.
struct NetClose {
  std::uint64_t channel;
  std::uint32_t by_sender;
  std::uint32_t demands;  ///< number that the receiver has sent
  std::uint64_t rounds;   ///< number that this side has completed
};

}  // namespace larklane::part::record

namespace larklane::part {

/// A word for the peer's memory: generation of the channel, round, and, in a notice, number of
/// cells. Its low half tells rounds apart: no store is four billion rounds late.
namespace net_word {
inline constexpr std::uint32_t kGenerations = 1u << 24;
constexpr std::uint64_t make(std::uint32_t generation, std::uint64_t round,
                             std::uint32_t cells = 1) noexcept {
  return std::uint64_t{generation} << 40 | std::uint64_t{cells - 1} << 32 | (round & 0xffffffff);
}
constexpr std::uint32_t generation(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word >> 40);
}
constexpr std::uint32_t cells(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word >> 32 & 0xff) + 1;
}
constexpr bool of_round(std::uint64_t word, std::uint64_t round) noexcept {
  return static_cast<std::uint32_t>(word) == static_cast<std::uint32_t>(round);
}
}  // namespace net_word

/// A sender's control words: the credit has a line of its own.
inline constexpr std::uint32_t kFinWords = 8;
inline constexpr std::uint32_t kDemandWord = 1;  ///< after the credit, on the same line

/// Limit of a channel without bytes: it needs memory for its marks alone, and no buffer limits
/// them.
inline constexpr std::uint32_t kEmptyPartitionsMax = 1u << 20;
constexpr bool are_too_many_empty(std::uint64_t partitions,
                                  std::uint64_t partition_bytes) noexcept {
  return partition_bytes == 0 && partitions > kEmptyPartitionsMax;
}

}  // namespace larklane::part
