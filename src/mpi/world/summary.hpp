#pragma once
// The text of `larklane run --summary`, printed when a process finalises.

#include <string>

#include "mpi/world/identity.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

/// A few lines, each beginning with "larklane: rank N: ".
/// @param forwarded  requests that were left to the MPI
/// @param ordinary   the carrier of ordinary messages, and the reason; empty: no line
std::string summary_text(const part::Summary& summary, std::uint64_t forwarded,
                         const Identity& identity, const std::string& ordinary = {});

/// "1.5 MiB"
std::string bytes_text(std::uint64_t bytes);

/// The same on standard error, in one piece.
void print_summary(const part::Summary& summary, std::uint64_t forwarded, const Identity& identity,
                   const std::string& ordinary);

}  // namespace larklane::mpi
