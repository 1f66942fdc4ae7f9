#pragma once
// Seeds of a law: a range, or the seed in LARKLANE_SEED.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace larklane::msg {

/// `first` to `last`; or as many from the seed in LARKLANE_SEED.
inline std::vector<std::uint64_t> seeds(std::uint64_t first, std::uint64_t last) {
  std::vector<std::uint64_t> all(last - first + 1);
  if (const char* const given = std::getenv("LARKLANE_SEED"))
    first = std::strtoull(given, nullptr, 10);
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// law(seed), for 1 to `count`, until one fails; or for the seed in LARKLANE_SEED and, with
/// LARKLANE_SOAK, for as many after it.
template <class Law>
void for_seeds(std::uint64_t count, Law&& law) {
  const bool is_one =
      std::getenv("LARKLANE_SEED") != nullptr && std::getenv("LARKLANE_SOAK") == nullptr;
  const std::uint64_t last = is_one ? 1 : count;
  for (const std::uint64_t seed : seeds(1, last)) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    law(seed);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace larklane::msg
