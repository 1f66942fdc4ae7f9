#pragma once
// Bytes of the program that a post names.

#include <cstddef>
#include <cstdint>
#include <span>

namespace larklane::msg {

/// Thread safety: immutable.
struct UserBytes {
  std::byte* start;
  std::uint64_t bytes;
  std::span<const std::byte> span() const noexcept { return {start, bytes}; }
};

}  // namespace larklane::msg
