#include "msg/packet_inbox.hpp"

#include <new>
#include <utility>

namespace larklane::msg {

PacketInbox::PacketInbox(RingShape shape, std::uint32_t generation)
    : shape_(shape),
      generation_(generation),
      head_(shape.first_position()),
      lines_(new (std::nothrow) Line[shape.lines()]()),
      marks_(new (std::nothrow) std::uint64_t[(shape.cells + 63) / 64]()),
      freed_(head_) {}

Result<std::unique_ptr<PacketInbox>> PacketInbox::create(net::Fabric& fabric, RingShape shape,
                                                         std::uint32_t generation) {
  if (!shape.is_legal()) return Errc::kInvalidArgument;
  std::unique_ptr<PacketInbox> inbox(new (std::nothrow) PacketInbox(shape, generation));
  if (inbox == nullptr || inbox->lines_ == nullptr || inbox->marks_ == nullptr)
    return Errc::kNoMemory;
  inbox->lines_[0].words[0] = credit_word::none(generation);
  auto memory = fabric.register_memory(inbox->lines_.get(), sizeof(Line) * shape.lines());
  if (!memory) return memory.error();
  inbox->memory_ = std::move(memory).value();
  return inbox;
}

}  // namespace larklane::msg
