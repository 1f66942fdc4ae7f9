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

/// Either side, once a link: what the other one's connects to; followed by `bytes` bytes.
struct NetOffer {
  std::uint32_t bytes;
  std::uint32_t link;
  net::RemoteMemory greeting;  ///< 8 bytes to be read by who greets
};

/// The link to the peer is connected: the peer may use it, or greet, whose greeting has been
/// answered when it says so, too; once more: that has been heard. Or it can't be had: nobody may.
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
  std::uint32_t generation;       ///< of what the receiver stores into `control`
  net::RemoteMemory data;         ///< the packed bytes
  net::RemoteMemory control;      ///< credit, demand, then from kFinWords on one FIN a cell
  std::uint32_t link;             ///< by which all of the channel travels
  std::uint32_t demand_slot;      ///< 1 + that in the immediates of demands; 0: it takes none
  std::uint64_t demand_after_ns;  ///< in which nothing comes, until there is to be one
};

/// Receiver to sender: matched, and the link is ready.
struct NetAccept {
  std::uint64_t channel;
  std::uint32_t generation;  ///< of the notices
  std::uint32_t slot;        ///< in the immediates
  net::RemoteMemory data;
  net::RemoteMemory notices;  ///< one a cell; then, if there may be demands, the last one heard
};

/// One side has freed its request, and nothing of it is under way.
struct NetClose {
  std::uint64_t channel;
  std::uint32_t by_sender;
  std::uint32_t demands;  ///< that the receiver has sent
  std::uint64_t rounds;   ///< that it has completed
};

}  // namespace larklane::part::record

namespace larklane::part {

/// A word that is stored into the peer's memory: which channel's, which round's, and, in a notice,
/// how many cells. Rounds are told apart by their low half: no store is four billion rounds late.
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
inline constexpr std::uint32_t kDemandWord = 1;  ///< behind the credit, on its line

/// Of a channel without bytes: its marks are all that it needs memory for, and no buffer says how
/// many there may be.
inline constexpr std::uint32_t kEmptyPartitionsMax = 1u << 20;
constexpr bool are_too_many_empty(std::uint64_t partitions,
                                  std::uint64_t partition_bytes) noexcept {
  return partition_bytes == 0 && partitions > kEmptyPartitionsMax;
}

}  // namespace larklane::part
