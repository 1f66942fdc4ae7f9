#pragma once
// Seeds of a law, or the one that LARKLANE_SEED names.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace larklane::msg {

/// law(seed), for 1 to `count`, until one fails.
template <class Law>
void for_seeds(std::uint64_t count, Law&& law) {
  const auto one = [&](std::uint64_t seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    law(seed);
  };
  if (const char* const given = std::getenv("LARKLANE_SEED"))
    return one(std::strtoull(given, nullptr, 10));
  for (std::uint64_t seed = 1; seed <= count && !testing::Test::HasFailure(); ++seed) one(seed);
}

}  // namespace larklane::msg
