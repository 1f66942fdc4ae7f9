#pragma once
// The receiver's view of the arrival marks.
// Thread safety: thread-safe.

#include <atomic>
#include <cstdint>
#include <memory>

#include "part/protocol/block.hpp"
#include "part/protocol/layout.hpp"
#include "part/protocol/marked_prefix.hpp"

namespace larklane::part {

template <class P>
class Arrival {
 public:
  using Atomic8 = typename P::template Atomic<std::uint8_t>;

  Arrival(const BlockView<P>& block, std::uint32_t send_partitions, std::uint32_t recv_partitions)
      : marks_(block.arrived()),
        send_partitions_(send_partitions),
        recv_partitions_(recv_partitions),
        seen_(same_partitions() ? nullptr : std::make_unique<MarkedPrefix<P>[]>(recv_partitions)) {}

  /// Send partitions that a receive partition overlaps.
  Run covering(std::uint32_t recv_partition) const noexcept {
    if (same_partitions()) return {recv_partition, 1};
    return overlap(recv_partition, recv_partitions_, send_partitions_);
  }

  /// By receive partition: mark_of(round) once it has arrived. Null if the two sides' partitions
  /// differ: call arrived().
  const Atomic8* marks() const noexcept { return same_partitions() ? marks_ : nullptr; }

  /// Has every send partition that overlaps `recv_partition` arrived in `round`?
  bool arrived(std::uint64_t round, std::uint32_t recv_partition) const {
    // acquire: pairs with publish_moved()'s and a slot reader's release.
    if (same_partitions())
      return marks_[recv_partition].load(std::memory_order_acquire) == mark_of(round);
    auto& seen = seen_[recv_partition];
    return seen.is_whole(round) || all(round, covering(recv_partition), seen);
  }

  /// Has every send partition arrived in `round`?
  bool all_arrived(std::uint64_t round) const {
    return all(round, {0, send_partitions_}, all_seen_);
  }

 private:
  bool same_partitions() const noexcept { return send_partitions_ == recv_partitions_; }

  bool all(std::uint64_t round, Run run, MarkedPrefix<P>& seen) const {
    return seen.covers(round, run.count, [&](std::uint32_t i) {
      // acquire: pairs with publish_moved()'s and a slot reader's release.
      return marks_[run.first + i].load(std::memory_order_acquire) == mark_of(round);
    });
  }

  Atomic8* marks_;
  std::uint32_t send_partitions_;
  std::uint32_t recv_partitions_;
  std::unique_ptr<MarkedPrefix<P>[]> seen_;  ///< by receive partition, if the two sides' partitions
                                             ///< differ
  mutable MarkedPrefix<P> all_seen_;
};

}  // namespace larklane::part
