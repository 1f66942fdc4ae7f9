#include "msg/buffer.hpp"

#include <cstdlib>
#include <new>

namespace larklane::msg {

void give_back_buffer(void* bytes) noexcept {
  if (bytes == nullptr) return;
  Node& node = *reinterpret_cast<Node*>(static_cast<std::byte*>(bytes) - sizeof(Node));
  if (node.home != nullptr)
    node.home->give_back(node);
  else
    std::free(&node);
}

std::byte* allocate_buffer(std::uint64_t bytes) noexcept {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const std::size_t whole = (sizeof(Node) + bytes + alignof(Node) - 1) / alignof(Node);
  void* const memory = std::aligned_alloc(alignof(Node), whole * alignof(Node));
  if (memory == nullptr) return nullptr;
  return reinterpret_cast<std::byte*>(new (memory) Node + 1);
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

}  // namespace larklane::msg
