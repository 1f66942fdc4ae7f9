// MPI_Start, MPI_Startall.

#include "mpi/abi/next.hpp"
#include "mpi/requests/batch.hpp"
#include "mpi/requests/error.hpp"

namespace larklane::mpi::face {

int Start(const Next& next, MPI_Request* request) {
  if (no_carriers()) [[likely]]
    return next.Start(request);
  Request* const ours = find_carrier_at(request);
  if (ours == nullptr) return next.Start(request);
  const Status status = ours->start();
  return status.ok() ? MPI_SUCCESS : raise_refused(*ours, "MPI_Start", status);
}

int Startall(const Next& next, int count, MPI_Request array_of_requests[]) {
  if (count == 0) return MPI_SUCCESS;  // Open MPI 5.0 refuses a null array of no requests
  if (!any_ours(count, array_of_requests)) [[likely]]
    return next.Startall(count, array_of_requests);
  // Check all our requests before any request starts; the MPI checks its own.
  Scratch<MPI_Request> natives(count);
  int native_count = 0;
  for (int i = 0; i < count; ++i) {
    const Request* const ours = find_carrier(array_of_requests[i]);
    if (ours == nullptr) {
      natives[native_count++] = array_of_requests[i];
    } else if (ours->is_active()) {
      return raise_refused(*ours, "MPI_Startall", Errc::kAlreadyActive);
    }
  }
  if (native_count > 0) {
    const int code = next.Startall(native_count, natives.data());
    if (code != MPI_SUCCESS) return code;
  }
  for (int i = 0; i < count; ++i) {
    Request* const ours = find_carrier(array_of_requests[i]);
    if (ours == nullptr) continue;
    // Fails only if a handle is in the array twice, or its channel has failed.
    const Status status = ours->start();
    if (!status.ok()) return raise_refused(*ours, "MPI_Startall", status);
  }
  return MPI_SUCCESS;
}

}  // namespace larklane::mpi::face
