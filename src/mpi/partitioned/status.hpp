#pragma once
// MPI_Status by public fields and MPI calls only: the three ABIs lay it out differently.

#include "mpi/abi/handles.hpp"
#include "mpi/partitioned/carrier.hpp"

namespace larklane::mpi {

inline bool is_wanted(const MPI_Status* status) noexcept {
  return status != MPI_STATUS_IGNORE && status != MPI_STATUSES_IGNORE;
}

/// The empty status (MPI 4.0, 3.7.3) except MPI_ERROR, which only calls on arrays set. Does nothing
/// if the status is ignored.
void set_empty(MPI_Status* status);
/// What a finished round says of itself, except MPI_ERROR: a receive like one of all its bytes, a
/// send like the empty status.
void set_finished(MPI_Status* status, const Partitioned& request);

}  // namespace larklane::mpi
