// MPI_Waitsome, MPI_Testsome, MPI_Request_get_status_some.

#include "mpi/abi/next.hpp"
#include "mpi/requests/complete_many.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/requests/waiting.hpp"

namespace larklane::mpi {
namespace {

/// The result of one poll of an array: the MPI's entries, then ours, in the caller's output arrays.
struct Some {
  int code = MPI_SUCCESS;
  int count = 0;               ///< entries of the output arrays
  bool native_active = false;  ///< the MPI has requests that are active
  Failure failure;             ///< of our first failed request
};

/// @return false: an error of the MPI ends the call
bool take_natives(const Next& next, Batch& batch, MPI_Request* requests, int* indices,
                  MPI_Status* statuses, Some* some) {
  if (batch.native_count() == 0) return true;
  int done = 0;
  some->code = batch.call_native(requests, [&] {
    return next.Testsome(batch.count(), batch.natives(), &done, indices, statuses);
  });
  if (some->code != MPI_SUCCESS && some->code != MPI_ERR_IN_STATUS) return false;
  some->native_active = done != MPI_UNDEFINED;
  some->count = done == MPI_UNDEFINED ? 0 : done;
  return true;
}

void take_ours(const Batch& batch, Pass& pass, MPI_Request* requests, int* indices,
               MPI_Status* statuses, Some* some) {
  const int natives = some->count;
  const bool natives_have_errors = some->code == MPI_ERR_IN_STATUS;
  Scratch<int> codes(batch.count());
  for (int i = 0; i < batch.count(); ++i) {
    if (batch.ours(i) == nullptr) continue;
    const Completion completion = batch.ours(i)->poll(pass);
    if (!is_over(completion)) continue;
    const Failure failure =
        finish_round(*batch.ours(i), completion, requests + i, status_at(statuses, some->count));
    if (failure.code != MPI_SUCCESS && some->failure.code == MPI_SUCCESS) some->failure = failure;
    codes[some->count] = failure.code;
    indices[some->count++] = i;
  }
  if (some->failure.code != MPI_SUCCESS) some->code = MPI_ERR_IN_STATUS;
  if (some->code != MPI_ERR_IN_STATUS || statuses == MPI_STATUSES_IGNORE) return;
  for (int k = natives_have_errors ? natives : 0; k < some->count; ++k) {
    statuses[k].MPI_ERROR = k < natives ? MPI_SUCCESS : codes[k];
  }
}

Some look(const Next& next, Batch& batch, Pass& pass, MPI_Request* requests, int* indices,
          MPI_Status* statuses) {
  Some some;
  if (!take_natives(next, batch, requests, indices, statuses, &some)) return some;
  take_ours(batch, pass, requests, indices, statuses, &some);
  if (some.failure.code != MPI_SUCCESS) raise_code_at(some.failure.target, some.failure.code);
  return some;
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

int Waitsome(const Next& next, int incount, MPI_Request array_of_requests[], int* outcount,
             int array_of_indices[], MPI_Status* array_of_statuses) {
  if (is_bad_count(incount)) [[unlikely]]
    return raise_bad_count("MPI_Waitsome", incount);
  if (!any_ours(incount, array_of_requests)) [[likely]] {
    return next.Waitsome(incount, array_of_requests, outcount, array_of_indices, array_of_statuses);
  }
  if (any_null(array_of_statuses, outcount, array_of_indices)) [[unlikely]]
    return raise_null("MPI_Waitsome");
  Batch batch(incount, array_of_requests);
  if (!batch.any_active()) {
    if (batch.native_count() == 0) {
      *outcount = MPI_UNDEFINED;
      return MPI_SUCCESS;
    }
    return batch.call_native(array_of_requests, [&] {
      return next.Waitsome(incount, batch.natives(), outcount, array_of_indices, array_of_statuses);
    });
  }
  Waiting waiting;
  for (;;) {
    Pass pass;
    const Some some =
        look(next, batch, pass, array_of_requests, array_of_indices, array_of_statuses);
    if (some.count > 0 || some.code != MPI_SUCCESS) {
      *outcount = some.count;
      return some.code;
    }
    waiting.idle(pass);
  }
}

int Testsome(const Next& next, int incount, MPI_Request array_of_requests[], int* outcount,
             int array_of_indices[], MPI_Status* array_of_statuses) {
  if (is_bad_count(incount)) [[unlikely]]
    return raise_bad_count("MPI_Testsome", incount);
  if (!any_ours(incount, array_of_requests)) [[likely]] {
    help_before_native();
    return next.Testsome(incount, array_of_requests, outcount, array_of_indices, array_of_statuses);
  }
  if (any_null(array_of_statuses, outcount, array_of_indices)) [[unlikely]]
    return raise_null("MPI_Testsome");
  Batch batch(incount, array_of_requests);
  const bool was_active = batch.any_active();
  Pass pass;
  const Some some = look(next, batch, pass, array_of_requests, array_of_indices, array_of_statuses);
  *outcount = some.count;
  if (some.count == 0 && some.code == MPI_SUCCESS) {
    if (!was_active && !some.native_active) {
      *outcount = MPI_UNDEFINED;
    } else if (!some.native_active) {
      Process::get().poke_native();
    }
  }
  return some.code;
}

int Request_get_status_some(const Next& next, int incount, const MPI_Request array_of_requests[],
                            int* outcount, int array_of_indices[], MPI_Status* array_of_statuses) {
  if (is_bad_count(incount)) [[unlikely]]
    return raise_bad_count("MPI_Request_get_status_some", incount);
  if (!any_ours(incount, array_of_requests)) [[likely]] {
    return next.Request_get_status_some(incount, array_of_requests, outcount, array_of_indices,
                                        array_of_statuses);
  }
  if (any_null(array_of_statuses, outcount, array_of_indices)) [[unlikely]]
    return raise_null("MPI_Request_get_status_some");
  Batch batch(incount, array_of_requests);
  *outcount = MPI_UNDEFINED;
  const int code = batch.native_count() > 0
                       ? next.Request_get_status_some(incount, batch.natives(), outcount,
                                                      array_of_indices, array_of_statuses)
                       : MPI_SUCCESS;
  if (code != MPI_SUCCESS) return code;
  if (*outcount == MPI_UNDEFINED && batch.any_active()) *outcount = 0;
  Pass pass;
  for (int i = 0; i < incount; ++i) {
    if (batch.ours(i) == nullptr) continue;
    const Completion completion = batch.ours(i)->poll(pass);
    if (!is_over(completion)) continue;
    batch.ours(i)->fill(status_at(array_of_statuses, *outcount));
    array_of_indices[(*outcount)++] = i;
  }
  if (*outcount == 0) Process::get().poke_native();
  return MPI_SUCCESS;
}

}  // namespace larklane::mpi::face
