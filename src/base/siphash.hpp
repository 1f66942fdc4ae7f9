#pragma once
// SipHash-2-4 (Aumasson and Bernstein, 2012): a short keyed hash, https://131002.net/siphash/.
// Thread safety: thread-safe.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace larklane {

/// Known to the processes of one job and to no other.
using Secret = std::array<std::byte, 16>;

std::uint64_t siphash(const Secret& secret, std::span<const std::byte> text) noexcept;
/// The variant of 128 bits.
std::array<std::byte, 16> siphash_128(const Secret& secret,
                                      std::span<const std::byte> text) noexcept;

}  // namespace larklane
