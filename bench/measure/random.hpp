#pragma once
// Random numbers that depend on their name alone, not on who asked before: the same seed gives the
// same noise to the same thread in the same round, whatever the schedule.

#include <cmath>
#include <cstdint>
#include <numbers>

namespace larklane::bench {

/// Thread safety: single-owner. Sebastiano Vigna's splitmix64.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept
      : state_(mix(mix(mix(seed) ^ stream) ^ index)) {}

  std::uint64_t bits() noexcept { return mix(state_ += kStep); }
  /// In [0, 1).
  double uniform() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// Below `end`, which is not 0. The bias is below end / 2^64.
  std::uint64_t below(std::uint64_t end) noexcept { return bits() % end; }
  /// Mean 0, deviation 1 (Box and Muller).
  double gaussian() noexcept {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  /// Mean 1.
  double exponential() noexcept { return -std::log(1 - uniform()); }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;
  static constexpr std::uint64_t mix(std::uint64_t z) noexcept {
    z += kStep;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

}  // namespace larklane::bench
