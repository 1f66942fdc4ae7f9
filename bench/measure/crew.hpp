#pragma once
// Checks the ranks and ways of benchmarks that send messages between threads, applications
// included.

#include <string>

#include "options.hpp"

namespace larklane::bench {

/// Each rank of the first half sends to one rank of the second half. Applications need at least two
/// ranks.
/// @param launcher  with its option for the number of ranks, for the error message
/// @return why these ranks can't run the benchmark; empty if they can
std::string refusal_of_crew(const Options& options, int ranks, const std::string& launcher);
/// The same for a way that the benchmark does not have.
std::string refusal_of_ways(const Options& options);
/// The same for a way or an operation that only an MPI has.
std::string refusal_without_mpi(const Options& options);

}  // namespace larklane::bench
