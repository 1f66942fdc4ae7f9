#pragma once
// `larklane simulate`: the engine on a simulated network. Thread safety: single-owner.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grid.hpp"

namespace larklane::tools {

struct SimulateRequest : Grid {
  SimulateRequest() {
    rounds = 100;
    to_bytes = 128 << 20;
  }

  std::string regime = "niagara";
  std::string costs_file;  ///< of a host, to simulate its memory; empty: a network
  /// Instead of the regime's.
  std::optional<double> latency_ns, send_overhead_ns, recv_overhead_ns, gap_ns,
      gigabytes_per_second;
  std::optional<std::uint32_t> queues;
  std::optional<double> request_ns;
  std::string sweep;         ///< "8x8": over a plane of ranks; empty: one message
  double compute_us = 1000;  ///< of a partition of a rank of the plane, for each corner and block
  std::uint32_t blocks = 1;  ///< of a sweep, from each corner
  bool is_processor_free = false;
  bool is_receiver_late = false;
  std::uint32_t threads = 0;         ///< 0: one for each partition
  bool learns = false;               ///< policy `learned`, too
  bool searches = false;             ///< policy `table`, too: the best groups and queue pairs
  std::vector<double> deadlines_us;  ///< policy `timer`, too, with each of these

  /// Later rounds depend on earlier ones.
  bool adapts() const { return learns || !deadlines_us.empty(); }

  std::string show = "exposed";
};

/// Prints the exposed time of a receiver, by size and number of groups; and the same of a send for
/// each partition.
/// @return the exit status, after a message
int simulate(const SimulateRequest& request);

}  // namespace larklane::tools
