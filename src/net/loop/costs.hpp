#pragma once
// What a step of a virtual thread costs. Thread safety: immutable.

#include <cstdint>

namespace larklane::loop {

/// Virtual time is counted in picoseconds. "Measured" means on one two-core virtual machine (Xeon,
/// Linux 6, November 2026): a starting point, meant to be replaced by a machine's own numbers.
struct Costs {
  /// A load of a line that this core holds. Cited: L1 hit of 4 to 5 cycles (Intel optimization
  /// manual, 2.1).
  std::uint64_t load_ps = 1'000;
  /// A read-modify-write of a line that this core holds alone. Measured: 2 to 4 ns.
  std::uint64_t modify_ps = 3'000;
  /// A line comes from another core. Measured: half a round trip of one line between two cores,
  /// about 50 ns.
  std::uint64_t line_transfer_ps = 50'000;
  /// A memcpy call. Measured: an empty one, about 5 ns.
  std::uint64_t copy_setup_ps = 5'000;
  /// Measured: memcpy in cache, 40 GB/s.
  std::uint64_t copy_byte_ps = 25;
  /// Between two polls of a wait. Cited: PAUSE of up to 140 cycles since Skylake (Intel
  /// optimization manual, 2.5.4), at 3 GHz.
  std::uint64_t poll_ps = 47'000;
};

}  // namespace larklane::loop
