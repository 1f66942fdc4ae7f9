#pragma once
// Text of a file, of the environment or of another process, as a terminal may get it. Thread
// safety: pure functions.

#include <cstddef>
#include <string>
#include <string_view>

namespace larklane {

/// Longest text that a message quotes.
inline constexpr std::size_t kQuotedBytesMax = 200;

/// @return the length of the character at the begin of `text` that a terminal shows; 0: its first
/// byte is of a control character, or of no UTF-8 character, and has to be escaped
std::size_t shown_length(std::string_view text) noexcept;

/// Appends `byte` as \n, \t, \r or \xNN. `out` has room for kEscapeBytes.
inline constexpr std::size_t kEscapeBytes = 4;
std::size_t escape(unsigned char byte, char* out) noexcept;

/// One line: every byte that can't be shown is escaped; a text that is longer than `bytes_max`
/// ends in its length.
std::string printable(std::string_view text, std::size_t bytes_max = kQuotedBytesMax);

/// The same without memory of its own. @return bytes in `out`, which needs no end
std::size_t print_to(std::string_view text, char* out, std::size_t capacity) noexcept;

}  // namespace larklane
