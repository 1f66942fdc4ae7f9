#pragma once
// The records by which processes connect their lanes.
// Wire layout: docs/design/protocols/messages.md.
// Thread safety: immutable.

#include <cstdint>

#include "msg/packet/packet_wire.hpp"

namespace larklane::msg {

enum class MeshRecord : std::uint16_t {
  offer = 1,  ///< MeshOffer, then the packet offer
  ready,      ///< MeshReady; of a link that is greeted each side says it when the other may go on
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
  std::uint32_t error;  ///< an Errc; not 0: the link never will be
};
struct MeshGoodbye {
  std::int32_t rank;
};

}  // namespace larklane::msg
