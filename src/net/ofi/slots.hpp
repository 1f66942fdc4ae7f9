#pragma once
// Slots for pending operations. libfabric gets a slot, not the operation. So an operation can end
// when its peer is gone, although libfabric may still return the slot later.

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/provider.hpp"

namespace larklane::ofi {

class Link;

/// Thread safety: vci-serial.
struct alignas(64) Slot {
  fi_context2 context;        ///< first: libfabric is handed this, and may write to it
  net::Operation* operation;  ///< nullptr: none, or it has been ended without libfabric
  Link* link;
  Slot* next_free;
};

/// Thread safety: vci-serial.
/// Invariants:
/// 1. A slot is free, pending (it has an operation), or left behind (libfabric has it, no operation
///    waits for it).
/// 2. As many slots are free or pending as at the beginning.
class Slots {
 public:
  explicit Slots(std::size_t count) { grow(count); }

  /// @return nullptr: all are pending
  Slot* take(Link& link, net::Operation& operation) noexcept {
    Slot* slot = free_;
    if (slot == nullptr) [[unlikely]]
      return nullptr;
    free_ = slot->next_free;
    slot->operation = &operation;
    slot->link = &link;
    return slot;
  }
  /// @return its operation; nullptr: it was left behind
  net::Operation* give_back(Slot& slot) noexcept {
    if (slot.operation == nullptr) [[unlikely]]
      return nullptr;  // there is another one in its place
    net::Operation* operation = slot.operation;
    slot.operation = nullptr;
    slot.next_free = free_;
    free_ = &slot;
    return operation;
  }
  /// The slot behind a context that libfabric has come back with; nullptr: none of ours.
  Slot* find(void* context) const noexcept {
    const auto* place = static_cast<const std::byte*>(context);
    for (const Chunk& chunk : chunks_) {
      const auto* first = reinterpret_cast<const std::byte*>(chunk.slots.get());
      if (place >= first && place < first + chunk.count * sizeof(Slot))
        return static_cast<Slot*>(context);
    }
    return nullptr;
  }
  bool has_some_of(const Link& link) const noexcept {
    for (const Chunk& chunk : chunks_)
      for (std::size_t i = 0; i < chunk.count; ++i)
        if (chunk.slots[i].operation != nullptr && chunk.slots[i].link == &link) return true;
    return false;
  }
  /// End all operations of `link`, or all (nullptr), with `status`.
  void end_slow(const Link* link, Status status) {
    std::vector<net::Operation*> ended;
    for (const Chunk& chunk : chunks_) {
      for (std::size_t i = 0; i < chunk.count; ++i) {
        Slot& slot = chunk.slots[i];
        if (slot.operation == nullptr || (link != nullptr && slot.link != link)) continue;
        ended.push_back(slot.operation);
        slot.operation = nullptr;
      }
    }
    if (!ended.empty()) grow(ended.size());
    for (net::Operation* operation : ended) operation->complete(*operation, status);
  }

 private:
  struct Chunk {
    std::unique_ptr<Slot[]> slots;
    std::size_t count;
  };
  void grow(std::size_t count) {
    chunks_.push_back({std::make_unique<Slot[]>(count), count});
    for (std::size_t i = 0; i < count; ++i) {
      chunks_.back().slots[i].next_free = free_;
      free_ = &chunks_.back().slots[i];
    }
  }

  std::vector<Chunk> chunks_;
  Slot* free_ = nullptr;
};

}  // namespace larklane::ofi
