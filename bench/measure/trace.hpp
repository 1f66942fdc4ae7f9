#pragma once
// What happened in one round of a benchmark, on one clock. Written by a running benchmark, by the
// simulation, or by hand in a test: the formulas (metrics.hpp) see no difference.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace larklane::bench {

/// One part of a message on its way: from the moment when its thread has it ready (just before
/// Pready, Send or Put is called, so that the call is inside) to the moment when the receiver knows
/// that it is there.
struct Transfer {
  double begin_ns;
  double end_ns;
  std::uint64_t bytes;
};

/// Thread safety: immutable.
struct RoundTrace {
  std::vector<Transfer> transfers;  ///< not empty, any order
  /// When the receiver saw each part that it can tell from the others, any order, not empty. Of
  /// several receivers one after the other, as many of each.
  std::vector<double> arrivals_ns;
  /// When the last thread had finished computing: a program with one send after the join could not
  /// have sent before.
  double joined_ns;
  std::size_t receivers = 1;
};

/// Arrivals by receive partition as transfers by send partition: one has arrived when every receive
/// partition that shares a byte with it has.
/// @param ready_ns   [S] by send partition
/// @param arrived_ns [R] by receive partition
/// @param bytes      of the whole message, a multiple of S
std::vector<Transfer> transfers_of(const std::vector<double>& ready_ns,
                                   const std::vector<double>& arrived_ns, std::uint64_t bytes);

/// Did a receive partition arrive before a send partition that it shares a byte with was ready?
/// @param offset_ns  what the receiver's clock is ahead of the sender's at least
bool arrives_before_ready(const std::vector<double>& ready_ns,
                          const std::vector<double>& arrived_ns, double offset_ns);

}  // namespace larklane::bench
