#pragma once
// Random numbers that are the same with every compiler and library. Thread safety: single-owner.

#include <cstdint>

namespace larklane::loop {

/// splitmix64 (Steele, Lea, Flood, OOPSLA 2014): one word of state, every seed is good.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) noexcept : state_(seed) {}

  constexpr std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// 0 to bound - 1; bound >= 1, far below 2^32 (the bias is bound / 2^64).
  constexpr std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }
  constexpr bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace larklane::loop
