#pragma once
// How far a sequence of marks is of one round, without looking at the same ones again and again.

#include <cstdint>

#include "part/protocol/block.hpp"

namespace larklane::part {

/// Thread safety: thread-safe.
template <class P>
class MarkedPrefix {
 public:
  /// Was all of it marked in `round` when somebody looked? acquire: pairs with covers()' release.
  bool is_whole(std::uint64_t round) const {
    return seen_.load(std::memory_order_acquire) == stamped::make(round, kWhole);
  }

  /// Are all `count` marked in `round`? is_marked(i) asks one and acquires what is behind it.
  template <class IsMarked>
  bool covers(std::uint64_t round, std::uint32_t count, IsMarked&& is_marked) {
    // acquire: what it skips another thread has seen; pairs with the release below. A hint, only
    // ever too low; stamped, so that an older round's counts as none.
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
