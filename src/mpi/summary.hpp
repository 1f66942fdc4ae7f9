#pragma once
// What `larklane run --summary` prints when a process finalises.

#include <string>

#include "mpi/identity.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

/// At most ten lines, each beginning with "larklane: rank N: ".
std::string summary_text(const part::Summary& summary, const Identity& identity,
                         const Config& config);

/// The same on standard error, in one piece.
void print_summary(const part::Summary& summary, const Identity& identity, const Config& config);

}  // namespace larklane::mpi
