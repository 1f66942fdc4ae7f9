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

void set_finished(MPI_Status* status, const Partitioned& request) {
  if (!is_wanted(status)) return;
  if (request.send != nullptr) {
    set_empty(status);
  } else if (request.is_null_process()) {
    set(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
  } else {
    set(status, request.peer, request.tag, request.request->total_bytes());
  }
}

}  // namespace larklane::mpi
