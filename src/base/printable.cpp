#include "base/printable.hpp"

#include <cstdint>

namespace larklane {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t length = 0;  ///< 0: no character
};

/// Strict UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
Character decode(std::string_view text) noexcept {
  const auto at = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return {};
  const unsigned char first = at(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return {};
  std::uint32_t code = first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (at(i) & 0x3f);
  }
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[length] || code > 0x10ffff || is_surrogate) return {};
  return {code, length};
}

/// Controls of C0 and C1, and characters that reorder or end a line.
bool is_control(std::uint32_t code) noexcept {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::size_t shown_length(std::string_view text) noexcept {
  const Character character = decode(text);
  return character.length == 0 || is_control(character.code) ? 0 : character.length;
}

std::size_t escape(unsigned char byte, char* out) noexcept {
  constexpr char kDigits[] = "0123456789abcdef";
  out[0] = '\\';
  const char letter = byte == '\n' ? 'n' : byte == '\t' ? 't' : byte == '\r' ? 'r' : 'x';
  out[1] = letter;
  if (letter != 'x') return 2;
  out[2] = kDigits[byte >> 4];
  out[3] = kDigits[byte & 0xf];
  return kEscapeBytes;
}

std::size_t print_to(std::string_view text, char* out, std::size_t capacity) noexcept {
  std::size_t used = 0;
  while (!text.empty()) {
    char escaped[kEscapeBytes];
    const std::size_t shown = shown_length(text);
    const std::string_view piece =
        shown != 0
            ? text.substr(0, shown)
            : std::string_view(escaped, escape(static_cast<unsigned char>(text[0]), escaped));
    if (piece.size() > capacity - used) break;
    used += piece.copy(out + used, piece.size());
    text.remove_prefix(shown != 0 ? shown : 1);
  }
  return used;
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::size_t kept = text.size();
  if (kept > bytes_max) {
    kept = bytes_max;  // not within a character
    while (kept > 0 && (static_cast<unsigned char>(text[kept]) & 0xc0) == 0x80) --kept;
  }
  std::string out(kEscapeBytes * kept, '\0');
  out.resize(print_to(text.substr(0, kept), out.data(), out.size()));
  if (kept == text.size()) return out;
  out += "... (";
  out += std::to_string(text.size());
  out += " bytes)";
  return out;
}

}  // namespace larklane
