#pragma once
// Writes MPI_Status: its layout differs between the three ABIs.

#include <cstdint>

#include "mpi/abi/handles.hpp"
#include "mpi/abi/next.hpp"

namespace larklane::mpi {

inline bool is_wanted(const MPI_Status* status) noexcept {
  // NOLINTNEXTLINE(misc-redundant-expression): one value in some MPIs, two in others.
  return status != MPI_STATUS_IGNORE && status != MPI_STATUSES_IGNORE;
}

/// The status of a received message, except MPI_ERROR. Does nothing if the status is ignored.
inline void set_received(MPI_Status* status, int source, int tag, std::uint64_t bytes) {
  if (!is_wanted(status)) return;
  status->MPI_SOURCE = source;
  status->MPI_TAG = tag;
  // The fields are public in these families; a call of the MPI costs more than a small message.
#if defined(LARKLANE_FAMILY_MPICH)
  status->count_lo = static_cast<int>(bytes);
  status->count_hi_and_cancelled = static_cast<int>(bytes >> 32) << 1;
#elif defined(LARKLANE_FAMILY_OMPI)
  status->_cancelled = 0;
  status->_ucount = bytes;
#else
  next_pmpi().Status_set_elements_x(status, handles().byte, static_cast<MPI_Count>(bytes));
  next_pmpi().Status_set_cancelled(status, 0);
#endif
}
/// The empty status (MPI 4.0, 3.7.3) except MPI_ERROR, which only calls on arrays set. Does nothing
/// if the status is ignored.
inline void set_empty(MPI_Status* status) { set_received(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0); }
/// MPI_Test_cancelled will answer true. @pre set_empty() or set_received() has filled it
inline void set_cancelled(MPI_Status* status) { next_pmpi().Status_set_cancelled(status, 1); }

}  // namespace larklane::mpi
