#pragma once
// A text that is one of several alternatives, such as "none | static:N | min_bytes[:BYTES]".

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace larklane {

struct Choice {
  std::size_t index;  ///< of the alternative
  /// N, bytes or nanoseconds; nothing: the text states none, or a DEVICE.
  std::optional<std::uint64_t> argument;
};

/// @param forms  alternatives between bars, each "word", "word:N" (a count), "word[:BYTES]",
/// "word[:DELAY]" or "word[:DEADLINE]" (times), or "word[:DEVICE]" (any name). All numbers but
/// delays are at least 1.
/// @return nothing: the text is none of them
std::optional<Choice> read_choice(std::string_view text, std::string_view forms);

}  // namespace larklane
