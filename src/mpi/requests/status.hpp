#pragma once
// Writes MPI_Status: its layout differs between the three ABIs.

#include <cstdint>

#include "mpi/abi/handles.hpp"

namespace larklane::mpi {

inline bool is_wanted(const MPI_Status* status) noexcept {
  // NOLINTNEXTLINE(misc-redundant-expression): one value in some MPIs, two in others.
  return status != MPI_STATUS_IGNORE && status != MPI_STATUSES_IGNORE;
}

/// The empty status (MPI 4.0, 3.7.3) except MPI_ERROR, which only calls on arrays set. Does nothing
/// if the status is ignored.
void set_empty(MPI_Status* status);
/// The status of a received message, except MPI_ERROR. Does nothing if the status is ignored.
void set_received(MPI_Status* status, int source, int tag, std::uint64_t bytes);
/// MPI_Test_cancelled will answer true. @pre set_empty() or set_received() has filled it
void set_cancelled(MPI_Status* status);

}  // namespace larklane::mpi
