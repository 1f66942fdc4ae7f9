#pragma once
// Cards that processes publish, and control records that connect their lanes.
// Wire layout: docs/design/protocols/messages.md.
// Thread safety: immutable.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/address.hpp"
#include "base/siphash.hpp"
#include "msg/packet/packet_wire.hpp"

namespace larklane::msg {

/// A process's card.
struct MeshCard {
  static constexpr std::uint32_t kMagic = 0x686d'6b6c;  // "lkmh"
  static constexpr std::uint32_t kVersion = 3;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::array<char, 64> host{};  ///< processes with equal hosts reach each other's `local`
  std::array<char, kAddressBytes> local{};
  std::array<char, kRemoteAddressBytes> remote{};  ///< empty: other hosts can't reach it
  Secret secret{};                                 ///< rank 0's is the job's
};
static_assert(sizeof(MeshCard) == 8 + 64 + 96 + 512 + 16);

enum class MeshRecord : std::uint16_t {
  offer = 1,  ///< MeshOffer, then the packet offer
  ready,      ///< MeshReady; greeted links: each side sends it when the other may go on
  goodbye,    ///< MeshGoodbye: the sender posts nothing more on any link
  farewell,   ///< the same, as the answer to goodbye
};

struct MeshOffer {
  std::int32_t rank;  ///< the sender's
  std::uint32_t number;
};
struct MeshReady {
  std::int32_t rank;
  std::uint32_t number;
  std::uint32_t error;  ///< an Errc; not 0: the link never opens
};
struct MeshGoodbye {
  std::int32_t rank;
};

}  // namespace larklane::msg
