#include "msg/memory/buffer.hpp"

#include <cstdlib>
#include <new>

namespace larklane::msg {

std::byte* take_heap_buffer(std::uint64_t bytes) noexcept {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const std::size_t whole = (sizeof(Node) + bytes + alignof(Node) - 1) / alignof(Node);
  void* const memory = std::aligned_alloc(alignof(Node), whole * alignof(Node));
  if (memory == nullptr) return nullptr;
  return reinterpret_cast<std::byte*>(new (memory) Node + 1);
}

void give_back_buffer(void* bytes) noexcept {
  if (bytes == nullptr) return;
  Node& node = *reinterpret_cast<Node*>(static_cast<std::byte*>(bytes) - sizeof(Node));
  if (node.home != nullptr)
    node.home->give_back(node);
  else
    std::free(&node);
}

Result<BufferPool> BufferPool::create(std::uint32_t most) noexcept {
  auto small = Pool<Small>::create(most);
  if (!small) return small.error();
  auto middle = Pool<Middle>::create(most);
  if (!middle) return middle.error();
  auto large = Pool<Large>::create(most);
  if (!large) return large.error();
  return BufferPool(std::move(small).value(), std::move(middle).value(), std::move(large).value());
}

Result<LongBufferPool> LongBufferPool::create() noexcept {
  auto shorts = Pool<Short>::create(kKeptBytes / kShortBytes);
  if (!shorts) return shorts.error();
  auto middles = Pool<Middle>::create(kKeptBytes / kMiddleBytes);
  if (!middles) return middles.error();
  auto longs = Pool<Long>::create(kKeptBytes / kLongBytes);
  if (!longs) return longs.error();
  return LongBufferPool(std::move(shorts).value(), std::move(middles).value(),
                        std::move(longs).value());
}

std::byte* LongBufferPool::take(std::uint64_t bytes) noexcept {
  if (bytes <= kShortBytes) {
    if (Short* const kept = short_.get()) return kept->bytes;
  } else if (bytes <= kMiddleBytes) {
    if (Middle* const kept = middle_.get()) return kept->bytes;
  } else if (bytes <= kLongBytes) {
    if (Long* const kept = long_.get()) return kept->bytes;
  }
  return take_heap_buffer(bytes);
}

}  // namespace larklane::msg
