#pragma once
// Functions that the calls on several requests share.

#include <vector>

#include "mpi/abi/handles.hpp"
#include "mpi/requests/batch.hpp"

namespace larklane::mpi {

/// A status of an array, or the array's "ignore".
inline MPI_Status* status_at(MPI_Status* statuses, int i) noexcept {
  return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
}

/// The error code of a round, and the communicator with the error handler for it.
struct Failure {
  int code = MPI_SUCCESS;  ///< MPI_SUCCESS: the round has not failed
  MPI_Comm target{};
};

/// True while a request of ours exists and `count` is negative: some MPIs crash there.
inline bool is_bad_count(int count) noexcept { return count < 0 && !no_carriers(); }

/// Ends the round of the request behind `*handle`: fills the status. The request may no longer
/// exist afterwards.
Failure finish_round(Request& ours, Completion completion, MPI_Request* handle, MPI_Status* status);

/// A number that changes from call to call. It decides whether the MPI's requests or ours are
/// polled first, so that neither always comes last.
unsigned next_turn() noexcept;

}  // namespace larklane::mpi
