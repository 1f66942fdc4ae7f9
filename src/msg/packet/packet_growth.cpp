// A ring that grows: the sender's side. (docs/design/protocols/packets.md, "Rings that grow")

#include "msg/packet/packet_link.hpp"

namespace larklane::msg {

/// Makes the peer's ring grow if it was found full often enough, or if a record of so many cells
/// needs it: by a mark behind all other records. tests/protocol/grow.pml
[[gnu::noinline]] void PacketLink::grow_slow(std::uint32_t cells) noexcept {
  // relaxed, these: a policy.
  if (cells <= peer_shape_.assured_at_first() &&
      fulls_.load(std::memory_order_relaxed) < kFullsBeforeGrowth) {
    const std::uint64_t at = next_.load(std::memory_order_relaxed);
    if (full_at_.exchange(at, std::memory_order_relaxed) == at ||
        fulls_.fetch_add(1, std::memory_order_relaxed) + 1 < kFullsBeforeGrowth)
      return;
  }
  Packet* const packet = lane_.take_packet();
  if (packet == nullptr) return;
  // acquire: pairs with complete_locked()'s release; all records before are written.
  const std::uint64_t mark = completed_.load(std::memory_order_acquire);
  std::uint64_t next = mark;
  // acquire: pairs with the release below, of another thread.
  if (!next_.compare_exchange_strong(next, mark | kLocked, std::memory_order_acquire,
                                     std::memory_order_relaxed))
    return lane_.give_back(*packet);
  if (peer_cells_.load(std::memory_order_relaxed) == peer_shape_.cells) {
    next_.store(mark, std::memory_order_release);
    return lane_.give_back(*packet);
  }
  const std::uint64_t grown = peer_shape_.grown_position(mark);
  write_record_head(packet->record_, RecordHead::kMarkBytes, stamp_of(mark, peer_generation_), {});
  packet->cells_ = static_cast<std::uint32_t>(grown - mark);  // those that are left out, too
  prepare(*packet, mark, sizeof(RecordHead));
  // relaxed: the release below carries both.
  peer_cells_.store(peer_shape_.cells, std::memory_order_relaxed);
  room_.store(peer_shape_.cells, std::memory_order_relaxed);
  next_.store(grown, std::memory_order_release);  // pairs with take_positions()
  grown_limit_.store(peer_shape_.grown_limit(mark), std::memory_order_release);  // find_room_slow()
  raise_limit(peer_shape_.grown_limit(mark));
  lane_.vci().post(*packet);
}

}  // namespace larklane::msg
