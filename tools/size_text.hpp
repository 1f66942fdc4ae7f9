#pragma once
// Sizes as people read them. Pure functions.

#include <cstdint>
#include <string>

namespace larklane::tools {

/// `4 KiB`: in the largest unit that divides it.
inline std::string size_text(std::uint64_t bytes) {
  int unit = 0;
  for (; unit < 3 && bytes % 1024 == 0 && bytes > 0; ++unit) bytes /= 1024;
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB"};
  return std::to_string(bytes) + kUnits[unit];
}

}  // namespace larklane::tools
