#pragma once
// What travels: every 8-byte word of a round's message differs from its neighbours and from its
// value in other rounds.

#include <cstddef>
#include <cstdint>
#include <span>

namespace larklane::bench {

/// @param buffer  the message from byte `offset` on
void fill(std::span<std::byte> buffer, std::uint64_t offset, std::uint64_t round);
/// @return words that are not what fill() wrote
std::uint64_t wrong_words(std::span<const std::byte> buffer, std::uint64_t offset,
                          std::uint64_t round);
/// Write back and drop every line of the buffer from all caches. False: this processor has no
/// instruction for it that a program may use.
bool flush(std::span<const std::byte> buffer);

}  // namespace larklane::bench
