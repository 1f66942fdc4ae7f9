#pragma once
// Random numbers that depend on their name alone, not on earlier calls. The same seed gives the
// same noise to the same thread in the same round, independent of the schedule.

#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/splitmix.hpp"

namespace larklane::bench {

/// splitmix64. Thread safety: single-owner.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept
      : state_(splitmix(splitmix(splitmix(seed) ^ stream) ^ index)) {}

  std::uint64_t bits() noexcept { return splitmix(state_ += kSplitmixStep); }
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
  std::uint64_t state_;
};

}  // namespace larklane::bench
