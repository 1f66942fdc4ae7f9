#include "msg/packet_lane.hpp"

#include <new>
#include <utility>

#include "msg/packet_link.hpp"

namespace larklane::msg {

Result<std::unique_ptr<PacketLane>> PacketLane::create(net::Fabric& fabric, Options options) {
  if (fabric.limits().channel_partitions_max != 0) return Errc::kBadOption;
  auto pool = PacketPool::create(fabric, options.packets, options.record_cells);
  if (!pool) return pool.error();
  std::unique_ptr<PacketLane> lane(new (std::nothrow)
                                       PacketLane(fabric, options, std::move(pool).value()));
  if (lane == nullptr) return Errc::kNoMemory;
  return lane;
}

Result<std::uint16_t> PacketLane::take_slot(PacketLink& link) {
  constexpr std::uint32_t kSlots = 1u << 16;  // bits of an immediate
  Result<std::uint16_t> taken = Errc::kNoMemory;
  vci_->exclusively([&] {
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      const std::uint32_t slot = (next_slot_ + i) % kSlots;
      if (slot >= slots_.size()) slots_.resize(slot + 1);
      if (slots_[slot] != nullptr) continue;
      slots_[slot] = &link;
      next_slot_ = slot + 1;
      taken = static_cast<std::uint16_t>(slot);
      return;
    }
  });
  return taken;
}

void PacketLane::clear_slot(std::uint16_t slot) {
  vci_->exclusively([&] { slots_[slot] = nullptr; });
}

void PacketLane::on_immediate(std::uint32_t immediate) {
  const std::uint32_t slot = immediate >> 16;
  PacketLink* const link = slot < slots_.size() ? slots_[slot] : nullptr;
  if (link == nullptr) [[unlikely]]
    return note_locked(strays_);
  link->arrive(immediate & 0xffff);
}

PacketCounts PacketLane::counts() const noexcept {
  const auto value = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  return {value(no_room_), value(no_packet_), value(delivered_), value(credit_words_),
          value(strays_)};
}

}  // namespace larklane::msg
