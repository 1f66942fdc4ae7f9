#include "part/shared/channel.hpp"

#include <algorithm>

namespace larklane::part {

void send_fail(PeerState& peer, std::uint64_t channel, bool by_sender, Status status,
               std::uint64_t bytes) {
  const record::Fail record{
      channel, by_sender ? 1u : 0u, static_cast<std::int32_t>(status.code()), status.detail(), 0,
      bytes};
  // If send() fails the peer is gone, and the engine detects that by itself.
  (void)peer.peer->send(static_cast<std::uint16_t>(record::Type::fail),
                        std::as_bytes(std::span(&record, 1)));
}

bool lies_within(const shm::Segment& region, std::uint64_t offset, const Typemap& type,
                 std::uint64_t total_bytes) {
  __extension__ using Wide = __int128;
  if (total_bytes == 0 || type.size_bytes() == 0) return total_bytes == 0;
  const Wide last = static_cast<Wide>((total_bytes - 1) / type.size_bytes()) * type.extent_bytes();
  const Wide base = static_cast<std::int64_t>(offset);
  return base + type.low_bytes() + std::min(last, Wide{0}) >= 0 &&
         base + type.high_bytes() + std::max(last, Wide{0}) <= static_cast<Wide>(region.bytes());
}

}  // namespace larklane::part
