// MPI_Request_free, MPI_Cancel.

#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/requests/batch.hpp"

namespace larklane::mpi::face {

int Request_free(const Next& next, MPI_Request* request) {
  Request* const ours = find_carrier_at(request);
  if (ours != nullptr) return ours->free(request);
  if (request != nullptr) remove_forwarded(*request);
  return next.Request_free(request);
}

int Cancel(const Next& next, MPI_Request* request) {
  if (no_carriers()) [[likely]]
    return next.Cancel(request);
  Request* const ours = find_carrier_at(request);
  return ours != nullptr ? ours->cancel() : next.Cancel(request);
}

}  // namespace larklane::mpi::face
