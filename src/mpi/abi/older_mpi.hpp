#pragma once
// Calls of calls.def that an older MPI lacks. A program that refers to one by a weak symbol, as
// mpi4py does, finds the preload stub's symbol and calls it.

#include "mpi/abi/next.hpp"

namespace larklane::mpi {

/// Fills the null entries: calls that need no more than older ones are made of these, the others
/// return MPI_ERR_UNSUPPORTED_OPERATION. Calls of partitioned communication stay null.
void fill_for_older_mpi(Next& mpi, Next& pmpi) noexcept;

}  // namespace larklane::mpi
