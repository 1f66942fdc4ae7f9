#include "mpi/requests/status.hpp"

#include "mpi/abi/next.hpp"

namespace larklane::mpi {
namespace {

void set(MPI_Status* status, int source, int tag, std::uint64_t bytes) {
  status->MPI_SOURCE = source;
  status->MPI_TAG = tag;
  next_pmpi().Status_set_elements_x(status, handles().byte, static_cast<MPI_Count>(bytes));
  next_pmpi().Status_set_cancelled(status, 0);
}

}  // namespace

void set_empty(MPI_Status* status) {
  if (is_wanted(status)) set(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
}

void set_received(MPI_Status* status, int source, int tag, std::uint64_t bytes) {
  if (is_wanted(status)) set(status, source, tag, bytes);
}

}  // namespace larklane::mpi
