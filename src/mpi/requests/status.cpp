#include "mpi/requests/status.hpp"

#include "mpi/abi/next.hpp"

namespace larklane::mpi {
namespace {

void set(MPI_Status* status, int source, int tag, std::uint64_t bytes) {
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

}  // namespace

void set_empty(MPI_Status* status) {
  if (is_wanted(status)) set(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
}

void set_cancelled(MPI_Status* status) { next_pmpi().Status_set_cancelled(status, 1); }

void set_received(MPI_Status* status, int source, int tag, std::uint64_t bytes) {
  if (is_wanted(status)) set(status, source, tag, bytes);
}

}  // namespace larklane::mpi
