#pragma once
// Functions that the calls on several requests share.

#include <vector>

#include "mpi/abi/handles.hpp"
#include "mpi/requests/batch.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

/// A status of an array, or the array's "ignore".
inline MPI_Status* status_at(MPI_Status* statuses, int i) noexcept {
  return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
}

/// Ends a round: fills the status and makes the request inactive. @return the round's error code;
/// MPI_SUCCESS if it has not failed
int finish_round(Partitioned& ours, part::Completion completion, MPI_Status* status);

/// A number that changes from call to call. It decides whether the MPI's requests or ours are
/// polled first, and the index at which the poll of ours begins. So no request always comes last.
unsigned next_turn() noexcept;

}  // namespace larklane::mpi
