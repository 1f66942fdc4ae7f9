// MPI_Request_free, MPI_Cancel.

#include "base/log.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/partitioned/batch.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/partitioned/error.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi::face {

int Request_free(const Next& next, MPI_Request* request) {
  Partitioned* const ours = find_carrier_at(request);
  if (ours == nullptr) {
    if (request != nullptr) remove_forwarded(*request);
    return next.Request_free(request);
  }
  // Rule C5: only an active round that is incomplete is in the way.
  if (ours->request->active()) {
    if (ours->request->poll() == part::Completion::pending) {
      return raise_refused(*ours, "MPI_Request_free", Errc::kAlreadyActive, "");
    }
    ours->request->finish();
  }
  // Out of the table first: the MPI may give the handle to another thread as soon as it is freed.
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
