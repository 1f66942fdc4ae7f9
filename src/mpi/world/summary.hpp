#pragma once
// The text of `larklane run --summary`, printed when a process finalises.

#include <string>

#include "mpi/world/identity.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

/// The ordinary messages of a process.
struct OrdinaryMessages {
  std::string text;       ///< their carrier, the reason, and counts; empty: option `p2p` is off
  bool had_none = false;  ///< Larklane carried them, and there was none
};

/// A few lines, each beginning with "larklane: rank N: "; one line if there was nothing to speed
/// up.
/// @param forwarded  requests that were left to the MPI
std::string summary_text(const part::Summary& summary, std::uint64_t forwarded,
                         const Identity& identity, const OrdinaryMessages& ordinary = {});

/// "1.5 MiB"
std::string bytes_text(std::uint64_t bytes);

/// The same on standard error, in one piece.
void print_summary(const part::Summary& summary, std::uint64_t forwarded, const Identity& identity,
                   const OrdinaryMessages& ordinary);

}  // namespace larklane::mpi
