// MPI_Request_free, MPI_Cancel.

#include "base/log.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/requests/batch.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi::face {

int Request_free(const Next& next, MPI_Request* request) {
  Partitioned* const ours = find_carrier_at(request);
  if (ours == nullptr) {
    if (request != nullptr) remove_forwarded(*request);
    return next.Request_free(request);
  }
  // Rule C5: only an incomplete round refuses the call.
  if (ours->request->active()) {
    if (ours->request->poll() == part::Completion::pending) {
      return raise_refused(*ours, "MPI_Request_free", Errc::kAlreadyActive, "");
    }
    ours->request->finish();
  }
  // Remove it from the table first: once freed, the handle may at once belong to another thread.
  const auto freed = remove_carrier(ours);
  if (!freed->is_null_process()) {
    const Status status = Process::get().engine()->free(freed->request);
    if (!status.ok()) {
      log_warn("MPI_Request_free: %s", errc_name(status.code()));
    }
  }
  return next_pmpi().Request_free(request);
}

int Cancel(const Next& next, MPI_Request* request) {
  if (no_carriers()) [[likely]]
    return next.Cancel(request);
  const Partitioned* const ours = find_carrier_at(request);
  if (ours == nullptr) return next.Cancel(request);
  return raise(ours->communicator.get(), MPI_ERR_REQUEST,
               "MPI_Cancel on " + description(*ours) + ": partitioned requests can't be cancelled");
}

}  // namespace larklane::mpi::face
