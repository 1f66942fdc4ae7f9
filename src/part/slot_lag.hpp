#pragma once
// Does the receiver keep up with the slots?

#include <atomic>
#include <cstdint>

#include "part/block.hpp"

namespace larklane::part {

/// Thread safety: thread-safe. All of it is a hint: every atomic is relaxed.
template <class P>
class SlotLag {
 public:
  /// `partition` of `round` has been put into its slot.
  void filled(std::uint64_t round, std::uint32_t partition) {
    const std::uint32_t at = filled_.fetch_add(1, std::memory_order_relaxed) % kSlots;
    recent_[at].store(stamped::make(round, partition), std::memory_order_relaxed);
  }

  /// The slot that was filled kSlots slots ago, in this round, has not been emptied.
  bool is_behind(const BlockView<P>& block, std::uint64_t round) const {
    const std::uint32_t at = filled_.load(std::memory_order_relaxed) % kSlots;
    const std::uint64_t oldest = recent_[at].load(std::memory_order_relaxed);
    return stamped::of_round(oldest, round) &&
           block.arrived()[stamped::bits(oldest)].load(std::memory_order_relaxed) != mark_of(round);
  }

 private:
  /// A receiver that looks all the time is two or three slots behind a sender at full speed.
  static constexpr std::uint32_t kSlots = 8;
  typename P::template Atomic<std::uint32_t> filled_{0};
  typename P::template Atomic<std::uint64_t> recent_[kSlots]{};
};

}  // namespace larklane::part
