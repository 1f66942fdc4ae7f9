#pragma once
// splitmix64 (Steele, Lea, Flood, OOPSLA 2014): random numbers that are the same with every
// compiler and library. Pure functions.

#include <cstdint>

namespace larklane {

/// From one state to the next; every state is a good seed.
inline constexpr std::uint64_t kSplitmixStep = 0x9e3779b97f4a7c15;

/// The number that the generator returns in `state`; also a hash of `state`.
constexpr std::uint64_t splitmix(std::uint64_t state) noexcept {
  std::uint64_t z = state + kSplitmixStep;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace larklane
