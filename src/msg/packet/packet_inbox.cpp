#include "msg/packet/packet_inbox.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace larklane::msg {

PacketInbox::PacketInbox(RingShape shape, std::uint32_t generation, bool is_first_word_last)
    : shape_(shape),
      generation_(generation),
      is_first_word_last_(is_first_word_last),
      head_(shape.first_position()),
      marks_(new (std::nothrow) std::uint64_t[(shape.cells + 63) / 64]()),
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
  if (inbox == nullptr || inbox->marks_ == nullptr) return Errc::kNoMemory;
  auto memory = fabric.allocate_memory(sizeof(Line) * shape.lines());
  if (!memory) return memory.error();
  inbox->memory_ = std::move(memory).value();
  inbox->lines_ = reinterpret_cast<Line*>(inbox->memory_->start());
  inbox->lines_[0].words[0] = credit_word::none(generation);
  return inbox;
}

}  // namespace larklane::msg
