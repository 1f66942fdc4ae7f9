#pragma once
// Prefetches for writing: a sender owns cache lines before it stores to them.
//
// Since two rounds ago the lines that a sender writes next are in the reader's cache. A fetch takes
// as long as a message (measurements/, half-round-trip, the bare line). A store buffer full of such
// stores stalls Pready; an early prefetch costs nothing. It also brings back lines that the
// program's own data has evicted since the round before.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "part/protocol/block.hpp"

namespace larklane::part {

/// Prefetches a line for writing. No access: any address is allowed.
[[gnu::always_inline]] inline void own_line(const void* address) noexcept {
#ifdef __x86_64__
  // __builtin_prefetch(address, 1) prefetches for reading only, unless the compiler knows that the
  // processor has this instruction. Processors without it ignore it.
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

/// Demotes a line that another core writes next, from this core's cache to the shared one. No
/// access: any address is allowed. Processors without the instruction ignore it.
[[gnu::always_inline]] inline void hand_on_line(const void* address) noexcept {
#ifdef __x86_64__
  asm volatile("cldemote %0" ::"m"(*static_cast<const char*>(address)));
#else
  (void)address;
#endif
}

/// Prefetches the first lines of [from, from + bytes): about as many as a core can have in flight.
inline void own_first_lines(const void* from, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kBytesMax = 16 * kLineBytes;
  const auto* start = static_cast<const char*>(from);
  for (std::uint64_t at = 0; at < std::min(bytes, kBytesMax); at += kLineBytes)
    own_line(start + at);
}

}  // namespace larklane::part
