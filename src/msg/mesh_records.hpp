#pragma once
// Control records that connect the lanes of two processes.
// Wire layout: docs/design/protocols/messages.md.
// Thread safety: immutable.

#include <cstdint>

#include "msg/packet/packet_wire.hpp"

namespace larklane::msg {

enum class MeshRecord : std::uint16_t {
  offer = 1,  ///< MeshOffer, then the packet offer
  ready,      ///< MeshReady; greeted links: each side sends it when the other may go on
  goodbye,    ///< MeshGoodbye: the sender posts nothing more on any link
  farewell,   ///< the same, as the answer to goodbye
  bell,       ///< MeshBell: a thread of the sender waits for progress of the receiver
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
struct MeshBell {
  std::int32_t rank;
};

}  // namespace larklane::msg
