#pragma once
// Bytes as hexadecimal text. Thread safety: pure functions.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace larklane {

/// Two lower-case digits a byte.
std::string hex_text(std::span<const std::byte> bytes);
/// The bytes that hex_text() has written; nothing: `text` has another form.
std::optional<std::vector<std::byte>> bytes_of_hex(std::string_view text);

}  // namespace larklane
