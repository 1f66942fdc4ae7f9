#pragma once
// What has arrived: the receiver's view of the arrival marks.
// Thread safety: thread-safe.

#include <atomic>
#include <cstdint>
#include <memory>

#include "part/block.hpp"
#include "part/layout.hpp"

namespace larklane::part {

template <class P>
class Arrival {
 public:
  using Atomic8 = typename P::template Atomic<std::uint8_t>;

  Arrival(const BlockView<P>& block, std::uint32_t send_partitions, std::uint32_t recv_partitions)
      : marks_(block.arrived()),
        send_partitions_(send_partitions),
        recv_partitions_(recv_partitions),
        scanned_(same_partitions() ? nullptr : std::make_unique<Atomic64[]>(recv_partitions)) {}

  /// Send partitions under a receive partition.
  Run covering(std::uint32_t recv_partition) const noexcept {
    if (same_partitions()) return {recv_partition, 1};
    return overlap(recv_partition, recv_partitions_, send_partitions_);
  }

  /// By receive partition: mark_of(round) when it has arrived. Null: its partitions are not the
  /// send's, ask arrived().
  const Atomic8* marks() const noexcept { return same_partitions() ? marks_ : nullptr; }

  /// Every send partition under `recv_partition` is in the buffer in `round`.
  bool arrived(std::uint64_t round, std::uint32_t recv_partition) const {
    // acquire: pairs with publish_moved()'s and a slot reader's release.
    if (same_partitions())
      return marks_[recv_partition].load(std::memory_order_acquire) == mark_of(round);
    auto& scanned = scanned_[recv_partition];
    // acquire: pairs with all()'s release.
    if (scanned.load(std::memory_order_acquire) == stamped::make(round, kAll)) return true;
    return all(round, covering(recv_partition), scanned);
  }

  /// Every send partition is in the buffer in `round`.
  bool all_arrived(std::uint64_t round) const {
    return all(round, {0, send_partitions_}, all_scanned_);
  }

 private:
  using Atomic64 = typename P::template Atomic<std::uint64_t>;
  static constexpr std::uint32_t kAll = ~std::uint32_t{0};

  bool same_partitions() const noexcept { return send_partitions_ == recv_partitions_; }

  bool all(std::uint64_t round, Run run, Atomic64& scanned) const {
    // acquire: what it skips another thread has seen; pairs with the release below. A hint, only
    // ever too low; stamped, so that an older round's counts as none.
    const std::uint64_t hint = scanned.load(std::memory_order_acquire);
    const std::uint32_t start = stamped::of_round(hint, round) ? stamped::bits(hint) : 0;
    std::uint32_t count = start;
    // acquire: pairs with publish_moved()'s and a slot reader's release.
    while (count < run.count &&
           marks_[run.first + count].load(std::memory_order_acquire) == mark_of(round))
      ++count;
    const bool complete = count >= run.count;
    if (complete) count = kAll;
    // release: pairs with the acquire above.
    if (count != start) scanned.store(stamped::make(round, count), std::memory_order_release);
    return complete;
  }

  Atomic8* marks_;
  std::uint32_t send_partitions_;
  std::uint32_t recv_partitions_;
  std::unique_ptr<Atomic64[]> scanned_;  ///< by receive partition: how far its marks were all there
  mutable Atomic64 all_scanned_{0};
};

}  // namespace larklane::part
