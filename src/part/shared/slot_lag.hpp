#pragma once
// Detects a receiver that falls behind in emptying slots.

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "part/protocol/block.hpp"

namespace larklane::part {

/// Thread safety: thread-safe. All of it is a hint: every atomic is relaxed.
template <class P>
class SlotLag {
 public:
  explicit SlotLag(std::uint64_t partition_bytes) noexcept
      : slots_(static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>(kBytes / partition_bytes, kSlotsMin, kSlotsMax))) {}

  /// `partition` of `round` has been put into its slot.
  void filled(std::uint64_t round, std::uint32_t partition) {
    const std::uint32_t at = filled_.fetch_add(1, std::memory_order_relaxed) % kSlotsMax;
    recent_[at].store(stamped::make(round, partition), std::memory_order_relaxed);
  }

  /// Is a slot of this round still full that was filled some slots ago?
  bool is_behind(const BlockView<P>& block, std::uint64_t round) const {
    const std::uint32_t at = (filled_.load(std::memory_order_relaxed) - slots_) % kSlotsMax;
    const std::uint64_t oldest = recent_[at].load(std::memory_order_relaxed);
    return stamped::of_round(oldest, round) &&
           block.arrived()[stamped::bits(oldest)].load(std::memory_order_relaxed) != mark_of(round);
  }

 private:
  /// Bytes that the receiver may lag behind. A receiver that polls all the time is two or three
  /// slots behind a sender at full speed.
  static constexpr std::uint64_t kBytes = 128 << 10;
  static constexpr std::uint32_t kSlotsMin = 3, kSlotsMax = 8;
  const std::uint32_t slots_;
  typename P::template Atomic<std::uint32_t> filled_{0};
  typename P::template Atomic<std::uint64_t> recent_[kSlotsMax]{};
};

}  // namespace larklane::part
