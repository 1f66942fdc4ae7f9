#pragma once
// `larklane model`: predictions of PLogGP for a network. Thread safety: single-owner.

#include <cstdint>
#include <string>

#include "grid.hpp"

namespace larklane::tools {

/// Nanoseconds, and per byte. The defaults are an example: 11.5 GB/s is the bandwidth of the
/// paper's network, the others are round numbers of its kind.
struct ModelRequest : Grid {
  double latency_ns = 1000;
  double send_overhead_ns = 200;
  double recv_overhead_ns = 200;
  double gap_ns = 250;
  double gigabytes_per_second = 11.5;
  double per_part_ns = 0;
  bool is_receiver_serial = false;
  bool tuned =
      false;  ///< the policies' plans for this host's tuning; partitions, sizes and spread only
  std::string fit;  ///< a record, instead of all others
};

/// Prints the time after the last partition is ready, by size and number of transport partitions,
/// and the number that is best; or the output that `tuned` or `fit` ask for.
/// @return the exit status, after a message
int model(const ModelRequest& request);

}  // namespace larklane::tools
