#pragma once
// What a thread does between two calls of MPI.

#include <cstdint>
#include <vector>

#include "measure/options.hpp"

namespace larklane::bench {

/// Memory that a thread works through.
std::vector<double> scratch_memory();
void compute_until(double end_ns, std::vector<double>& scratch);

/// The order in which a thread's own partitions become ready.
std::vector<std::uint32_t> order_of(const Options& options, std::uint32_t thread,
                                    std::uint64_t round);

}  // namespace larklane::bench
