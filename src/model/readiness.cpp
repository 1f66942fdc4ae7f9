#include "model/readiness.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <utility>

namespace larklane::model {
namespace {

/// In (0, 1): the library's own distributions differ between implementations.
double uniform(std::mt19937_64& random) {
  return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
}

double gaussian(std::mt19937_64& random) {
  const double radius = std::sqrt(-2 * std::log(uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * uniform(random));
}

/// Of the patterns that follow from chance alone.
double draw(Pattern pattern, double spread_ns, std::mt19937_64& random) {
  switch (pattern) {
    case Pattern::uniform:
      return spread_ns * uniform(random);
    case Pattern::gaussian:
      return spread_ns * std::max(0.0, 4 + gaussian(random));
    case Pattern::exponential:
      return -spread_ns * std::log(uniform(random));
    case Pattern::simultaneous:
    case Pattern::laggard:
    case Pattern::alternating:
    case Pattern::bursts:
      break;
  }
  return 0;
}

}  // namespace

std::optional<Pattern> pattern_named(std::string_view name) noexcept {
  constexpr std::array<std::pair<std::string_view, Pattern>, 7> kNames{{
      {"simultaneous", Pattern::simultaneous},
      {"laggard", Pattern::laggard},
      {"uniform", Pattern::uniform},
      {"gaussian", Pattern::gaussian},
      {"exponential", Pattern::exponential},
      {"alternating", Pattern::alternating},
      {"bursts", Pattern::bursts},
  }};
  const auto* const found =
      std::ranges::find(kNames, name, [](const auto& each) { return each.first; });
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::vector<double>> readiness(Pattern pattern, double spread_ns,
                                           std::uint32_t partitions, std::uint32_t rounds,
                                           std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<double>> ready(rounds, std::vector<double>(partitions, 0.0));
  for (std::uint32_t round = 0; round < rounds; ++round)
    for (std::uint64_t p = 0; p < partitions; ++p) {
      double& time = ready[round][p];
      if (pattern == Pattern::laggard)
        time = p + 1 == partitions ? spread_ns : 0;
      else if (pattern == Pattern::alternating)
        time = (p < partitions / 2) == (round % 2 == 0) ? 0 : spread_ns;
      else if (pattern == Pattern::bursts)
        time = spread_ns * static_cast<double>(4 * p / partitions) / 3;
      else
        time = draw(pattern, spread_ns, random);
    }
  return ready;
}

}  // namespace larklane::model
