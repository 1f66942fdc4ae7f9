#pragma once
// Seeded damage of a text, as by a disk, an editor or an enemy.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <string_view>

namespace larklane {

/// One to four changes. The same seed and text give the same.
inline std::string mutated(std::string text, std::uint64_t seed) {
  static constexpr std::string_view kPieces[] = {
      "\n",         "=",
      "\"",         "#",
      "0",          "-1",
      "1e999",      "nan",
      "\x1b[2J",    "[[[",
      "}}}",        "\xff\xfe",
      "\xc2\x9b",   "99999999999999999999",
      "null",       "true",
      "end",        " ",
      "4294967296", "18446744073709551615",
      "{\"a\":",    std::string_view("\0\0\0\0\0\0\0\0", 8)};
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t limit) {
    return static_cast<std::size_t>(random() % std::max<std::size_t>(limit, 1));
  };
  for (std::size_t changes = 1 + below(4); changes != 0; --changes) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = std::min(below(24), text.size() - at);
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 3:
        text.replace(at, length, kPieces[below(std::size(kPieces))]);
        break;
      case 4:
        text.insert(below(text.size() + 1), text.substr(at, length));
        break;
      default:
        if (below(8) == 0) text.resize(at);
    }
  }
  return text;
}

}  // namespace larklane
