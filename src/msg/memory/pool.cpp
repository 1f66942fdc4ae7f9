#include "msg/memory/pool.hpp"

#include <algorithm>

namespace larklane::msg {
namespace {

std::int64_t length(const Node* node) noexcept {
  std::int64_t nodes = 0;
  for (; node != nullptr; node = node->next) ++nodes;
  return nodes;
}

}  // namespace

NodeStore::~NodeStore() {
  while (slabs_ != nullptr)
    ::operator delete (std::exchange(slabs_, slabs_->next), std::align_val_t{kLineBytes});
}

Node* NodeStore::take_slow() noexcept {
  // relaxed: a hint. acquire: pairs with the release of each give_back() (a release sequence).
  if (returned_.load(std::memory_order_relaxed) != nullptr)
    return returned_.exchange(nullptr, std::memory_order_acquire);
  return grow();
}

Node* NodeStore::grow() noexcept {
  const auto fitting = static_cast<std::uint32_t>(kSlabBytes / node_bytes_);
  const std::uint32_t count = std::min(std::clamp(fitting, 1u, kSlabNodes), nodes_max_ - nodes_);
  if (count == 0) return nullptr;
  void* const memory = ::operator new (sizeof(Slab) + count * node_bytes_,
                                       std::align_val_t{kLineBytes}, std::nothrow);
  if (memory == nullptr) return nullptr;
  slabs_ = new (memory) Slab{slabs_};
  auto* const places = reinterpret_cast<std::byte*>(slabs_ + 1);
  Node* first = nullptr;
  for (std::uint32_t i = count; i-- != 0;) {
    Node& node = construct_(places + i * node_bytes_);
    node.home = this;
    node.next = first;
    first = &node;
  }
  nodes_ += count;
  return first;
}

void NodeStore::retire(Node* free) noexcept {
  // acquire: pairs with the release of each give_back().
  const Node* const back = returned_.exchange(retired(), std::memory_order_acquire);
  count_missing(std::int64_t{nodes_} - length(free) - length(back));
}

void NodeStore::count_missing(std::int64_t change) noexcept {
  // acq_rel: pairs with itself: the delete comes after the last use of every node.
  if (missing_.fetch_add(change, std::memory_order_acq_rel) + change == 0) delete this;
}

}  // namespace larklane::msg
