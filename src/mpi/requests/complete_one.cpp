// MPI_Wait, MPI_Test, MPI_Request_get_status, MPIX_Request_is_complete.

#include "mpi/abi/next.hpp"
#include "mpi/requests/complete_many.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/requests/waiting.hpp"

namespace larklane::mpi {
namespace {

/// Ends a round: fills the status, and raises the error of a failure.
int finish(Request& ours, Completion completion, MPI_Request* handle, MPI_Status* status) {
  const Failure failure = finish_round(ours, completion, handle, status);
  return failure.code == MPI_SUCCESS ? MPI_SUCCESS : raise_code_at(failure.target, failure.code);
}

/// After a failure, or of an inactive request.
[[gnu::noinline]] int test_slow(Request& ours, Completion completion, MPI_Request* request,
                                MPI_Status* status) {
  if (completion == Completion::failed) return finish(ours, completion, request, status);
  set_empty(status);
  return MPI_SUCCESS;
}

[[gnu::noinline]] int wait_slow(Request& ours, MPI_Request* request, MPI_Status* status) {
  Waiting waiting;
  Pass pass;
  Completion completion = ours.poll(pass);
  while (completion == Completion::pending) {
    waiting.idle(pass);
    pass = {};
    completion = ours.poll(pass);
  }
  if (completion != Completion::inactive) return finish(ours, completion, request, status);
  set_empty(status);
  return MPI_SUCCESS;
}

/// Polls once. Completes *flag and *status if the request is inactive or pending.
Completion poll_once(Request& ours, int* flag, MPI_Status* status) {
  Pass pass;
  const Completion completion = ours.poll(pass);
  *flag = 1;
  if (completion == Completion::inactive) {
    set_empty(status);
  } else if (completion == Completion::pending) {
    *flag = 0;
    poke_now_and_then();
  }
  return completion;
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

template <const Next& next>
int direct::Wait(MPI_Request* request, MPI_Status* status) {
  Request* const ours = find_carrier_at(request);
  if (ours == nullptr) return next.Wait(request, status);
  if (any_null(status)) [[unlikely]]
    return settle(raise_null("MPI_Wait"));
  Pass pass;
  if (ours->try_end(pass, request, status) == Completion::complete) [[likely]]
    return MPI_SUCCESS;
  return settle(wait_slow(*ours, request, status));
}
LARKLANE_DIRECT_ENTRIES(direct::Wait)

template <const Next& next>
int direct::Test(MPI_Request* request, int* flag, MPI_Status* status) {
  Request* const ours = find_carrier_at(request);
  if (ours == nullptr) {
    Process::get().help();  // as in help_before_native()
    return next.Test(request, flag, status);
  }
  if (any_null(status, flag)) [[unlikely]]
    return settle(raise_null("MPI_Test"));
  Pass pass;
  const Completion completion = ours->try_end(pass, request, status);
  *flag = completion != Completion::pending ? 1 : 0;
  if (completion == Completion::pending)
    poke_now_and_then();
  else if (completion != Completion::complete) [[unlikely]]
    return settle(test_slow(*ours, completion, request, status));
  return MPI_SUCCESS;
}
LARKLANE_DIRECT_ENTRIES(direct::Test)

int Request_get_status(const Next& next, MPI_Request request, int* flag, MPI_Status* status) {
  Request* const ours = find_carrier(request);
  if (ours == nullptr) return next.Request_get_status(request, flag, status);
  if (any_null(status, flag)) [[unlikely]]
    return raise_null("MPI_Request_get_status");
  // A failed round is complete; the call that ends it raises the error.
  if (is_over(poll_once(*ours, flag, status))) ours->fill(status);
  return MPI_SUCCESS;
}

/// A truth value, not an error code. False of an incomplete request only, so not of an inactive
/// one.
int Request_is_complete(const Next& next, MPI_Request request) {
  if (Request* const ours = find_carrier(request)) {
    Pass pass;
    return ours->poll(pass) != Completion::pending ? 1 : 0;
  }
  if (next.Request_is_complete != nullptr) return next.Request_is_complete(request);
  int flag = 0;
  const int code = next.Request_get_status(request, &flag, MPI_STATUS_IGNORE);
  return code == MPI_SUCCESS && flag != 0 ? 1 : 0;
}

}  // namespace larklane::mpi::face
