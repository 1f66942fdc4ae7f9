#pragma once
// From which size on is one copy by attach faster than two copies through slots, on this machine?
// Thread safety: single-owner (forks).

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace larklane::tools {

inline constexpr int kCrossoverSamplesMin = 20;

struct CrossoverPoint {
  std::size_t bytes;
  double slots_ns;   ///< copied in by one process, handed over, copied out by the other
  double attach_ns;  ///< written by one process into the other, handed over; 0 where the kernel
                     ///< forbids it
};

struct Crossover {
  std::vector<CrossoverPoint> points;  ///< 1 KiB to 1 MiB, doubling
  std::string problem;                 ///< why there are no points

  /// Smallest size from which on attach is faster at every measured size.
  std::optional<std::size_t> crossover_bytes() const;
};

/// Takes about half a second.
Crossover measure_crossover();

}  // namespace larklane::tools
