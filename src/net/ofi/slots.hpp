#pragma once
// Where operations under way are noted: libfabric is handed a slot, not the operation, so that an
// operation can be ended when its peer is gone, although libfabric may still come back with it.

#include <rdma/fabric.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/provider.hpp"

namespace larklane::ofi {

class Link;

/// Thread safety: vci-serial.
struct alignas(64) Slot {
  fi_context2 context;        ///< first: this is what libfabric is handed, and may write to
  net::Operation* operation;  ///< nullptr: none, or it has been ended without libfabric
  Link* link;
  Slot* next_free;
  std::uint64_t order;  ///< of those that were posted
  bool is_held_up;      ///< see Endpoint::leave_slow()
};

/// Thread safety: vci-serial.
/// Invariants:
/// 1. A slot is free, under way (it has an operation), or left behind (libfabric has it, nobody
///    waits for it).
/// 2. As many slots are free or under way as at the beginning.
class Slots {
 public:
  explicit Slots(std::size_t count) { grow(count); }

  /// @return nullptr: all are under way
  Slot* take(Link& link, net::Operation& operation) noexcept {
    Slot* slot = free_;
    if (slot == nullptr) [[unlikely]]
      return nullptr;
    free_ = slot->next_free;
    slot->operation = &operation;
    slot->link = &link;
    slot->order = ++last_;
    slot->is_held_up = false;
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
    return has_any([&](const Slot& slot) { return slot.link == &link; });
  }
  bool has_held_up() const noexcept {
    return has_any([](const Slot& slot) { return slot.is_held_up; });
  }
  bool has_held_up_of(const Link& link) const noexcept {
    return has_any([&](const Slot& slot) { return slot.link == &link && slot.is_held_up; });
  }
  /// The first of what is under way on `link`, and was posted since something was held up last;
  /// UINT64_MAX: nothing is.
  std::uint64_t first_of(const Link& link) const noexcept {
    std::uint64_t first = UINT64_MAX;
    (void)has_any([&](const Slot& slot) {
      if (slot.link == &link && slot.order > left_) first = std::min(first, slot.order);
      return false;
    });
    return first;
  }
  /// What has been posted after `order` waits behind what never ends.
  void hold_up_slow(std::uint64_t order) noexcept {
    left_ = last_;
    for (const Chunk& chunk : chunks_)
      for (std::size_t i = 0; i < chunk.count; ++i)
        chunk.slots[i].is_held_up |= chunk.slots[i].order > order;
  }
  /// End all operations of `link`, or all (nullptr), with `status`.
  void end_slow(const Link* link, Status status) {
    end_if_slow([&](const Slot& slot) { return link == nullptr || slot.link == link; }, status);
  }
  void end_slow(const net::Operation& operation, Status status) {
    end_if_slow([&](const Slot& slot) { return slot.operation == &operation; }, status);
  }
  void end_held_up_slow(const Link& link, Status status) {
    end_if_slow([&](const Slot& slot) { return slot.link == &link && slot.is_held_up; }, status);
  }

 private:
  struct Chunk {
    std::unique_ptr<Slot[]> slots;
    std::size_t count;
  };
  template <class Is>
  bool has_any(Is&& is) const noexcept {
    for (const Chunk& chunk : chunks_)
      for (std::size_t i = 0; i < chunk.count; ++i)
        if (chunk.slots[i].operation != nullptr && is(chunk.slots[i])) return true;
    return false;
  }
  template <class Is>
  void end_if_slow(Is&& is, Status status) {
    std::vector<net::Operation*> ended;
    for (const Chunk& chunk : chunks_) {
      for (std::size_t i = 0; i < chunk.count; ++i) {
        Slot& slot = chunk.slots[i];
        if (slot.operation == nullptr || !is(slot)) continue;
        ended.push_back(slot.operation);
        slot.operation = nullptr;
      }
    }
    if (!ended.empty()) grow(ended.size());
    for (net::Operation* operation : ended) operation->complete(*operation, status);
  }
  void grow(std::size_t count) {
    chunks_.push_back({std::make_unique<Slot[]>(count), count});
    for (std::size_t i = 0; i < count; ++i) {
      chunks_.back().slots[i].next_free = free_;
      free_ = &chunks_.back().slots[i];
    }
  }

  std::vector<Chunk> chunks_;
  Slot* free_ = nullptr;
  std::uint64_t last_ = 0;  ///< number of posts
  std::uint64_t left_ = 0;  ///< then
};

}  // namespace larklane::ofi
