#pragma once
// The events of one round of a benchmark, on one clock. A running benchmark, the simulation or a
// test writes it: the formulas (metrics.hpp) do not depend on its origin.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace larklane::bench {

/// One part of a message in flight. It begins when the thread has the part ready, just before it
/// calls Pready, Send or Put, so that the call counts. It ends when the receiver knows of the
/// arrival.
struct Transfer {
  double begin_ns;
  double end_ns;
  std::uint64_t bytes;
};

/// Thread safety: immutable.
struct RoundTrace {
  std::vector<Transfer> transfers;  ///< not empty, any order
  /// When the receiver saw each part that it can distinguish, in any order, not empty. With several
  /// receivers: one after the other, the same number for each.
  std::vector<double> arrivals_ns;
  /// When the last thread finished computing: the earliest time for a program that sends once after
  /// the join.
  double joined_ns;
  std::size_t receivers = 1;
};

/// Converts arrivals by receive partition to transfers by send partition. A send partition arrives
/// when the last receive partition that shares a byte with it arrives.
/// @param ready_ns   [S] by send partition
/// @param arrived_ns [R] by receive partition
/// @param bytes      of the whole message, a multiple of S
std::vector<Transfer> transfers_of(const std::vector<double>& ready_ns,
                                   const std::vector<double>& arrived_ns, std::uint64_t bytes);

/// True if a receive partition arrives before a send partition that shares a byte with it is ready.
/// @param offset_ns  a lower bound of the receiver's clock minus the sender's
bool arrives_before_ready(const std::vector<double>& ready_ns,
                          const std::vector<double>& arrived_ns, double offset_ns);

}  // namespace larklane::bench
