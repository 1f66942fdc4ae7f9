#include "base/secret.hpp"

#include <cstring>

#include "base/hex.hpp"

namespace larklane {

Secret key_of(std::string_view text) noexcept {
  Secret key{};
  for (std::size_t half = 0; half < 2; ++half) {
    Secret variant{};
    variant[0] = std::byte{static_cast<unsigned char>(half + 1)};
    const std::uint64_t word = siphash(variant, std::as_bytes(std::span(text)));
    std::memcpy(key.data() + half * sizeof word, &word, sizeof word);
  }
  return key;
}

std::string public_name(std::string_view text, std::string_view label) {
  return hex_text(siphash_128(key_of(text), std::as_bytes(std::span(label))));
}

}  // namespace larklane
