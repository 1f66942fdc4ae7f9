#pragma once
// A thread's work between two calls of MPI.

#include <cstdint>
#include <vector>

#include "measure/options.hpp"

namespace larklane::bench {

/// Memory for a thread's work.
std::vector<double> scratch_memory();
void compute_until(double end_ns, std::vector<double>& scratch);

/// The order in which a thread's own partitions become ready.
std::vector<std::uint32_t> order_of(const Options& options, std::uint32_t thread,
                                    std::uint64_t round);

}  // namespace larklane::bench
