#pragma once
// Lines that a sender is going to write are in the reader's cache since two rounds ago. To fetch
// one takes as long as a message (measurements/, half-round-trip, the bare line), and a store
// buffer full of such stores stalls Pready; asked for in time, it costs nothing. What a program's
// own data has driven out of the caches since the round before comes back in the same way.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "part/protocol/block.hpp"

namespace larklane::part {

/// Ask for a line, to write it. No access: any address is allowed.
[[gnu::always_inline]] inline void own_line(const void* address) noexcept {
#ifdef __x86_64__
  // __builtin_prefetch(address, 1) asks for it only to read, unless the compiler is told that the
  // processor has this instruction; where it has not, it does nothing.
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

/// Let go of a line that another core writes next: it finds it in the cache that all share, not in
/// this core's. No access: any address is allowed. Processors that do not know it do nothing.
[[gnu::always_inline]] inline void hand_on_line(const void* address) noexcept {
#ifdef __x86_64__
  asm volatile("cldemote %0" ::"m"(*static_cast<const char*>(address)));
#else
  (void)address;
#endif
}

/// Ask for the first lines of [from, from + bytes): about as many as a core has under way at a
/// time.
inline void own_first_lines(const void* from, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kBytesMax = 16 * kLineBytes;
  const auto* start = static_cast<const char*>(from);
  for (std::uint64_t at = 0; at < std::min(bytes, kBytesMax); at += kLineBytes)
    own_line(start + at);
}

}  // namespace larklane::part
