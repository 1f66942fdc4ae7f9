#pragma once
// How far two clocks are apart.

#include <cmath>

namespace larklane::bench {

/// One clock minus another, and the error's bound.
struct Offset {
  double offset_ns, error_ns;
};

/// What holds until the next measurement: clocks run apart, and go on as they did since `last`.
inline Offset drifting(const Offset& last, const Offset& measured) {
  return {measured.offset_ns, measured.error_ns + std::abs(measured.offset_ns - last.offset_ns)};
}

}  // namespace larklane::bench
