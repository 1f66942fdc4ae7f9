#include "msg/packet/packet_pool.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace larklane::msg {
namespace {

constexpr std::uint64_t kNumberMask = 0xffff'ffff;
constexpr std::uint64_t kOneTaken = kNumberMask + 1;

}  // namespace

PacketPool::PacketPool(std::uint32_t count, std::uint32_t record_cells)
    : count_(count),
      packets_(new (std::nothrow) Packet[count]),
      lines_(new (std::nothrow) Line[std::size_t{count} * record_cells]) {
  if (packets_ == nullptr || lines_ == nullptr) return;
  for (std::uint32_t i = count; i > 0; --i) {
    Packet& packet = packets_[i - 1];
    packet.pool_ = this;
    packet.number_ = i;
    packet.record_ = lines_[std::size_t{i - 1} * record_cells].bytes;
    packet.payload_bytes_max_ = RingShape{record_cells, record_cells}.payload_bytes_max();
    give_back(packet);
  }
}

Result<std::unique_ptr<PacketPool>> PacketPool::create(net::Fabric& fabric, std::uint32_t count,
                                                       std::uint32_t record_cells) {
  if (count == 0 || count > kCountMax || record_cells == 0 ||
      record_cells > RingShape::kRecordCellsMax)
    return Errc::kInvalidArgument;
  std::unique_ptr<PacketPool> pool(new (std::nothrow) PacketPool(count, record_cells));
  if (pool == nullptr || pool->packets_ == nullptr || pool->lines_ == nullptr)
    return Errc::kNoMemory;
  auto memory = fabric.register_memory(pool->lines_.get(),
                                       std::uint64_t{count} * record_cells * sizeof(Line));
  if (!memory) return memory.error();
  pool->memory_ = std::move(memory).value();
  return pool;
}

Packet* PacketPool::take_of(List& list) noexcept {
  // acquire: pairs with give_back()'s release; the exchanges between them are read-modify-writes.
  std::uint64_t free = list.load(std::memory_order_acquire);
  while ((free & kNumberMask) != 0) {
    Packet& packet = packets_[(free & kNumberMask) - 1];
    // relaxed: if another thread has taken the packet, the value is arbitrary, and the exchange
    // fails.
    const std::uint64_t next = packet.next_.load(std::memory_order_relaxed);
    if (list.compare_exchange_weak(free, ((free & ~kNumberMask) + kOneTaken) | next,
                                   std::memory_order_acquire, std::memory_order_acquire))
      return &packet;
  }
  return nullptr;
}

void PacketPool::give_back(Packet& packet) noexcept {
  PacketPool& pool = *packet.pool_;
  const std::uint32_t reserved = std::max(pool.count_ / kOneReservedOf, 1u);
  List& list = packet.number_ <= reserved ? pool.reserved_ : pool.free_;
  std::uint64_t free = list.load(std::memory_order_relaxed);  // relaxed: the exchange compares it
  do packet.next_.store(static_cast<std::uint32_t>(free & kNumberMask), std::memory_order_relaxed);
  // release: of the packet; pairs with take()'s acquire.
  while (!list.compare_exchange_weak(free, (free & ~kNumberMask) | packet.number_,
                                     std::memory_order_release, std::memory_order_relaxed));
}

}  // namespace larklane::msg
