#pragma once
// The length of the marked prefix of a sequence in one round, cached so that no mark is loaded
// twice.

#include <cstdint>

#include "part/protocol/block.hpp"

namespace larklane::part {

/// Thread safety: thread-safe.
template <class P>
class MarkedPrefix {
 public:
  /// Has covers() found all of it marked in `round`? acquire: pairs with covers()' release.
  bool is_whole(std::uint64_t round) const {
    return seen_.load(std::memory_order_acquire) == stamped::make(round, kWhole);
  }

  /// Are all `count` marked in `round`? is_marked(i) tests one mark and acquires the data behind
  /// it.
  template <class IsMarked>
  bool covers(std::uint64_t round, std::uint32_t count, IsMarked&& is_marked) {
    // acquire: another thread has acquired the marks that this thread skips; pairs with the release
    // below. The hint is only ever too low. Its stamp makes an older round's hint count as none.
    const std::uint64_t hint = seen_.load(std::memory_order_acquire);
    const std::uint32_t start = stamped::of_round(hint, round) ? stamped::bits(hint) : 0;
    std::uint32_t end = start;
    while (end < count && is_marked(end)) ++end;
    const bool whole = end >= count;
    if (whole) end = kWhole;
    // release: pairs with the acquires above.
    if (end != start) seen_.store(stamped::make(round, end), std::memory_order_release);
    return whole;
  }

 private:
  static constexpr std::uint32_t kWhole = ~std::uint32_t{0};
  typename P::template Atomic<std::uint64_t> seen_{0};
};

}  // namespace larklane::part
