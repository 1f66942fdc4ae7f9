#pragma once
// Offset between two clocks.

#include <cmath>

namespace larklane::bench {

/// One clock minus another, and the bound of the error.
struct Offset {
  double offset_ns, error_ns;
};

/// Holds until the next measurement: the clocks are assumed to drift on as they did since `last`.
inline Offset drifting(const Offset& last, const Offset& measured) {
  return {measured.offset_ns, measured.error_ns + std::abs(measured.offset_ns - last.offset_ns)};
}

}  // namespace larklane::bench
