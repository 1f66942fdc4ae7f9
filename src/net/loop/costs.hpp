#pragma once
// Costs of the steps of a virtual thread, and of a network. Thread safety: immutable.

#include <algorithm>
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

/// All steps are free: only the network remains.
inline constexpr Costs kFreeCosts{.load_ps = 0,
                                  .modify_ps = 0,
                                  .line_transfer_ps = 0,
                                  .copy_setup_ps = 0,
                                  .copy_byte_ps = 0,
                                  .poll_ps = 0};

/// LogGP's parameters of a network, in whole picoseconds. None has a default: no network was
/// measured here, and those of a simulated one are named with it (sim/regime.cpp).
struct NetworkCosts {
  std::uint64_t latency_ps = 0;        ///< L: on the wire, without either overhead
  std::uint64_t send_overhead_ps = 0;  ///< o_s: of the thread that posts, holding the queue's lock
  std::uint64_t recv_overhead_ps = 0;  ///< o_r: of the receiver, for each completion
  std::uint64_t gap_ps = 0;            ///< g: between two work requests of a queue, at least
  std::uint64_t byte_ps = 0;  ///< G: each byte after the first, on the wire all queues share
  std::uint32_t queues = 1;   ///< which work requests take in turn

  /// h: between the last byte of a work request and the first of the queue's next.
  constexpr std::uint64_t injection_ps() const noexcept {
    return std::max({gap_ps, send_overhead_ps, recv_overhead_ps});
  }
  constexpr std::uint64_t bytes_ps(std::uint64_t bytes) const noexcept {
    return bytes > 1 ? byte_ps * (bytes - 1) : 0;
  }
};

}  // namespace larklane::loop
