#pragma once
// Pieces of the calls that complete several requests.

#include <vector>

#include "mpi/abi/handles.hpp"
#include "mpi/partitioned/batch.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

/// A status of an array, or the array's "ignore".
inline MPI_Status* status_at(MPI_Status* statuses, int i) noexcept {
  return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
}

/// End the round of entry `i`: status, inactive again. @return its error code, MPI_SUCCESS if it
/// did not fail
int finish_round(Partitioned& ours, part::Completion completion, MPI_Status* status);

/// Two starting points in turn: who is asked first, the MPI's requests or ours, and with which
/// index ours begin, changes from call to call, so that nobody is always behind the others.
unsigned next_turn() noexcept;

}  // namespace larklane::mpi
