#pragma once
// A copy of few bytes. Pure function.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace larklane {

/// memcpy without its call for lengths up to a cache line: the ends of the range in two moves that
/// may overlap.
inline void copy_small(std::byte* to, const std::byte* from, std::uint64_t length) noexcept {
  const auto both_ends = [&](auto width) __attribute__((always_inline)) {
    std::memcpy(to, from, width());
    std::memcpy(to + length - width(), from + length - width(), width());
  };
  if (length > 64) {
    std::memcpy(to, from, length);
  } else if (length > 32) {
    both_ends(std::integral_constant<std::size_t, 32>{});
  } else if (length >= 16) {
    both_ends(std::integral_constant<std::size_t, 16>{});
  } else if (length >= 8) {
    both_ends(std::integral_constant<std::size_t, 8>{});
  } else if (length >= 4) {
    both_ends(std::integral_constant<std::size_t, 4>{});
  } else {
    for (; length != 0; --length) *to++ = *from++;
  }
}

}  // namespace larklane
