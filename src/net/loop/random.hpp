#pragma once
// Random numbers that are the same with every compiler and library. Thread safety: single-owner.

#include <cstdint>

#include "base/splitmix.hpp"

namespace larklane::loop {

/// splitmix64: one word of state.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) noexcept : state_(seed) {}

  constexpr std::uint64_t next() noexcept {
    const std::uint64_t number = splitmix(state_);
    state_ += kSplitmixStep;
    return number;
  }
  /// 0 to bound - 1; bound >= 1, far below 2^32 (the bias is bound / 2^64).
  constexpr std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }
  constexpr bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace larklane::loop
