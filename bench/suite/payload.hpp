#pragma once
// The payload: every 8-byte word of a round's message differs from its neighbours and from its
// value in other rounds.

#include <cstddef>
#include <cstdint>
#include <span>

namespace larklane::bench {

/// @param buffer  the message from byte `offset` on
void fill(std::span<std::byte> buffer, std::uint64_t offset, std::uint64_t round);
/// @return words that differ from fill()'s
std::uint64_t wrong_words(std::span<const std::byte> buffer, std::uint64_t offset,
                          std::uint64_t round);
/// Writes back and drops every line of the buffer from all caches.
/// @return false if this processor has no unprivileged instruction for it
bool flush(std::span<const std::byte> buffer);

}  // namespace larklane::bench
