#include "msg/packet/packet_inbox.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace larklane::msg {

PacketInbox::PacketInbox(RingShape shape, std::uint32_t generation, bool is_first_word_last)
    : shape_(shape),
      generation_(generation),
      is_first_word_last_(is_first_word_last),
      cells_(shape.cells_at_first()),
      untold_max_(shape.untold_max_at_first()),
      head_(shape.first_position()),
      marks_(is_first_word_last ? nullptr
                                : new (std::nothrow) std::uint64_t[(shape.cells + 63) / 64]()),
      freed_(head_) {}

Result<std::unique_ptr<PacketInbox>> PacketInbox::create(net::Fabric& fabric, RingShape shape,
                                                         std::uint32_t generation) {
  if (!shape.is_legal()) return Errc::kInvalidArgument;
  const net::Limits& limits = fabric.limits();
  // Parts of a cut write arrive in any order.
  const bool is_first_word_last =
      std::min(limits.first_word_last_bytes_max, limits.write_bytes_max) >=
      std::uint64_t{shape.record_cells} * kCellBytes;
  std::unique_ptr<PacketInbox> inbox(new (std::nothrow)
                                         PacketInbox(shape, generation, is_first_word_last));
  if (inbox == nullptr || (inbox->marks_ == nullptr && !is_first_word_last)) return Errc::kNoMemory;
  auto memory = fabric.allocate_memory(sizeof(Line) * shape.lines());
  if (!memory) return memory.error();
  inbox->memory_ = std::move(memory).value();
  inbox->lines_ = reinterpret_cast<Line*>(inbox->memory_->start());
  inbox->lines_[0].words[0] = credit_word::none(generation);
  return inbox;
}

[[gnu::noinline]] Result<bool> PacketInbox::grow_slow(const RecordHead& head) noexcept {
  if (head.stamp != stamp_of(head_, generation_) || cells() == shape_.cells ||
      head.freed_and_bytes != RecordHead::kMarkBytes)
    return Errc::kProtocol;
  cells_.store(shape_.cells, std::memory_order_relaxed);
  untold_max_ = shape_.untold_max();
  head_ = shape_.grown_position(head_);
  is_followed_ = false;
  freed_.store(head_, std::memory_order_release);  // pairs with freed()
  return true;
}

}  // namespace larklane::msg
