// MPI_Wait, MPI_Test, MPI_Request_get_status.

#include <optional>

#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/requests/batch.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/requests/waiting.hpp"

namespace larklane::mpi {
namespace {

/// Ends a round: fills the status, makes the request inactive, and raises the error of a failure.
int finish(Partitioned& ours, part::Completion completion, MPI_Status* status) {
  const int code = completion == part::Completion::failed ? failure_code(ours) : MPI_SUCCESS;
  set_finished(status, ours);
  ours.request->finish();
  return code == MPI_SUCCESS ? MPI_SUCCESS : raise_code(ours.communicator.get(), code);
}

/// Polls once. @return empty if the request is inactive or pending: *flag and *status are complete
std::optional<part::Completion> poll_once(Partitioned& ours, int* flag, MPI_Status* status) {
  *flag = 1;
  if (!ours.request->active()) {
    set_empty(status);
    return std::nullopt;
  }
  const part::Completion completion = ours.request->poll();
  if (completion != part::Completion::pending) return completion;
  *flag = 0;
  Process::get().poke_native();
  return std::nullopt;
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

int Wait(const Next& next, MPI_Request* request, MPI_Status* status) {
  if (no_carriers()) [[likely]]
    return next.Wait(request, status);
  Partitioned* const ours = find_carrier_at(request);
  if (ours == nullptr) return next.Wait(request, status);
  if (any_null(status)) [[unlikely]]
    return raise_null("MPI_Wait");
  if (!ours->request->active()) {
    set_empty(status);
    return MPI_SUCCESS;
  }
  part::Completion completion = ours->request->poll();
  if (completion == part::Completion::pending) {
    Waiting waiting;
    do {
      waiting.idle();
      completion = ours->request->poll();
    } while (completion == part::Completion::pending);
  }
  return finish(*ours, completion, status);
}

int Test(const Next& next, MPI_Request* request, int* flag, MPI_Status* status) {
  if (no_carriers()) [[likely]]
    return next.Test(request, flag, status);
  Partitioned* const ours = find_carrier_at(request);
  if (ours == nullptr) {
    Process::get().help();  // as in help_before_native()
    return next.Test(request, flag, status);
  }
  if (any_null(status, flag)) [[unlikely]]
    return raise_null("MPI_Test");
  const auto completion = poll_once(*ours, flag, status);
  return completion ? finish(*ours, *completion, status) : MPI_SUCCESS;
}

int Request_get_status(const Next& next, MPI_Request request, int* flag, MPI_Status* status) {
  if (no_carriers()) [[likely]]
    return next.Request_get_status(request, flag, status);
  Partitioned* const ours = find_carrier(request);
  if (ours == nullptr) return next.Request_get_status(request, flag, status);
  if (any_null(status, flag)) [[unlikely]]
    return raise_null("MPI_Request_get_status");
  // A failed round is complete; the call that ends it raises the error.
  if (poll_once(*ours, flag, status)) set_finished(status, *ours);
  return MPI_SUCCESS;
}

}  // namespace larklane::mpi::face
