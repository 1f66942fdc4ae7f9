// A ring that grows: the sender's side. (docs/design/protocols/packets.md, "Rings that grow")

#include <atomic>
#include <cstring>

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
  if (is_pushed()) return push_mark_slow();
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
  write_record_head(packet->record_, RecordHead::kMarkBytes, stamp_of(mark, peer_generation_), {});
  // Those that are left out, too.
  packet->cells_ = static_cast<std::uint32_t>(peer_shape_.grown_position(mark) - mark);
  prepare(*packet, mark, sizeof(RecordHead));
  use_all_cells(mark);
  lane_.vci().post(*packet);
}

/// As grow_slow() where posts are pushed: with `producer_` held all positions are written.
void PacketLink::push_mark_slow() noexcept {
  const SpinGuard guard(producer_);
  // acquire: pairs with the peer's withdrawal. relaxed: written with the lock held.
  if (peer_cells_.load(std::memory_order_relaxed) == peer_shape_.cells ||
      mapping_.registered->load(std::memory_order_acquire) != mapping_.generation)
    return;
  const std::uint64_t mark = next_.load(std::memory_order_relaxed);
  std::byte* const record = ring_ + ring_offset_of(peer_index_of(mark));
  std::byte head[sizeof(RecordHead)];
  write_record_head(head, RecordHead::kMarkBytes, stamp_of(mark, peer_generation_), {});
  std::uint64_t first = 0;
  std::memcpy(&first, head, sizeof first);
  std::memcpy(record + sizeof first, head + sizeof first, sizeof head - sizeof first);
  // release: of the rest of the head; pairs with the peer's is_at_head().
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(record))
      .store(first, std::memory_order_release);
  pushed_.store(pushed_.load(std::memory_order_relaxed) + peer_shape_.grown_position(mark) - mark,
                std::memory_order_relaxed);
  use_all_cells(mark);
}

/// @pre no thread takes positions
void PacketLink::use_all_cells(std::uint64_t mark) noexcept {
  // relaxed: the release below carries both.
  peer_cells_.store(peer_shape_.cells, std::memory_order_relaxed);
  room_.store(peer_shape_.cells, std::memory_order_relaxed);
  // release: pairs with take_positions(), and the next one with find_room_slow().
  next_.store(peer_shape_.grown_position(mark), std::memory_order_release);
  grown_limit_.store(peer_shape_.grown_limit(mark), std::memory_order_release);
  raise_limit(peer_shape_.grown_limit(mark));
}

}  // namespace larklane::msg
