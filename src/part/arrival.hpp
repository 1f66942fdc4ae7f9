#pragma once
// What has arrived: the receiver's view of the moved words.
// Thread safety: thread-safe but for start(), which belongs to the thread that calls Start.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "part/block.hpp"
#include "part/layout.hpp"

namespace larklane::part {

template <class P>
class Arrival {
 public:
  Arrival(const BlockView<P>& block, std::uint32_t send_partitions, std::uint32_t recv_partitions)
      : moved_(&block.moved(0)),
        send_partitions_(send_partitions),
        recv_partitions_(recv_partitions) {}

  /// The receiver's Start, before it opens: nothing of `round` has arrived. Stragglers of older
  /// rounds see a newer stamp.
  void start(std::uint64_t round) const {
    // release: pairs with arrived()'s acquire; movers see it through the opening read-modify-write.
    for (std::uint32_t m = 0; m < (send_partitions_ + 31) / 32; ++m)
      moved_[m].store(stamped::make(round, 0), std::memory_order_release);
  }

  Run covering(std::uint32_t recv_partition) const noexcept {
    if (send_partitions_ == recv_partitions_) return {recv_partition, 1};
    return overlap(recv_partition, recv_partitions_, send_partitions_);
  }

  /// Receive partition `partition` is in the buffer in `round` (or the round is over).
  [[gnu::always_inline]] bool arrived_one(std::uint64_t round, std::uint32_t partition) const {
    if (send_partitions_ != recv_partitions_) [[unlikely]]
      return arrived(round, covering(partition));
    // acquire: as in arrived().
    const std::uint64_t value = moved_[partition / 32].load(std::memory_order_acquire);
    return (value >> (partition % 32) & 1) != 0 || !stamped::of_round(value, round);
  }

  /// Every send partition of `run` has been moved in `round` (or the round is over).
  bool arrived(std::uint64_t round, Run run) const {
    for (std::uint32_t first = run.first, end = run.first + run.count; first < end;) {
      const std::uint32_t bit = first % 32;
      const std::uint32_t count = std::min(end - first, 32 - bit);
      const std::uint32_t mask = low_mask(count) << bit;
      // acquire: pairs with publish_moved's release.
      const std::uint64_t value = moved_[first / 32].load(std::memory_order_acquire);
      if (stamped::of_round(value, round) && (stamped::bits(value) & mask) != mask) return false;
      first += count;
    }
    return true;
  }

 private:
  typename BlockView<P>::Atomic64* moved_;
  std::uint32_t send_partitions_;
  std::uint32_t recv_partitions_;
};

}  // namespace larklane::part
