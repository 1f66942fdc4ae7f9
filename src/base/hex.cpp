#include "base/hex.hpp"

namespace larklane {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string hex_text(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<std::size_t>(byte) >> 4];
    text += kDigits[std::to_integer<std::size_t>(byte) & 15];
  }
  return text;
}

std::optional<std::vector<std::byte>> bytes_of_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::vector<std::byte> bytes(text.size() / 2);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t digit = kDigits.find(text[at]);
    if (digit == std::string_view::npos) return std::nullopt;
    bytes[at / 2] = bytes[at / 2] << 4 | static_cast<std::byte>(digit);
  }
  return bytes;
}

}  // namespace larklane
