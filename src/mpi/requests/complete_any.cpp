// MPI_Waitany, MPI_Testany, MPI_Request_get_status_any.

#include "mpi/abi/next.hpp"
#include "mpi/requests/complete_many.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/requests/waiting.hpp"

namespace larklane::mpi {
namespace {

/// The result of one poll of an array.
struct Found {
  int code = MPI_SUCCESS;
  int index = MPI_UNDEFINED;
  bool done = false;           ///< an entry or an error ends the call
  bool native_active = false;  ///< the MPI has requests that are active
};

/// Our first complete request, in the array's order, as MPIs choose; null if none is.
Request* find_complete(const Batch& batch, Pass& pass, int* index, Completion* completion) {
  for (int i = 0; i < batch.count(); ++i) {
    if (batch.ours(i) == nullptr) continue;
    *completion = batch.ours(i)->poll(pass);
    if (!is_over(*completion)) continue;
    *index = i;
    return batch.ours(i);
  }
  return nullptr;
}

bool complete_ours(const Batch& batch, Pass& pass, MPI_Request* requests, MPI_Status* status,
                   Found* found) {
  Completion completion;
  Request* const ours = find_complete(batch, pass, &found->index, &completion);
  if (ours == nullptr) return false;
  const Failure failure = finish_round(*ours, completion, requests + found->index, status);
  found->code =
      failure.code == MPI_SUCCESS ? MPI_SUCCESS : raise_code_at(failure.target, failure.code);
  found->done = true;
  return true;
}

bool complete_native(const Next& next, Batch& batch, MPI_Request* requests, MPI_Status* status,
                     Found* found) {
  if (batch.native_count() == 0) return false;
  int flag = 0, index = MPI_UNDEFINED;
  found->code = batch.call_native(requests, [&] {
    return next.Testany(batch.count(), batch.natives(), &index, &flag, status);
  });
  if (found->code != MPI_SUCCESS || (flag != 0 && index != MPI_UNDEFINED)) {
    found->index = index;
    found->done = true;
  }
  found->native_active = flag == 0;
  return found->done;
}

/// Completes a call on an array without active requests.
int complete_nothing(int* index, MPI_Status* status) {
  *index = MPI_UNDEFINED;
  set_empty(status);
  return MPI_SUCCESS;
}

/// Polls the MPI's requests and ours once; the MPI's come first in every other call.
Found look(const Next& next, Batch& batch, unsigned turn, Pass& pass, MPI_Request* requests,
           MPI_Status* status) {
  Found found;
  if (turn % 2 == 0) {
    if (!complete_ours(batch, pass, requests, status, &found))
      complete_native(next, batch, requests, status, &found);
  } else {
    if (!complete_native(next, batch, requests, status, &found))
      complete_ours(batch, pass, requests, status, &found);
  }
  return found;
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

int Waitany(const Next& next, int count, MPI_Request array_of_requests[], int* index,
            MPI_Status* status) {
  if (is_bad_count(count)) [[unlikely]]
    return raise_bad_count("MPI_Waitany", count);
  if (!any_ours(count, array_of_requests)) [[likely]] {
    return next.Waitany(count, array_of_requests, index, status);
  }
  if (any_null(status, index)) [[unlikely]]
    return raise_null("MPI_Waitany");
  Batch batch(count, array_of_requests);
  if (!batch.any_active()) {
    if (batch.native_count() == 0) return complete_nothing(index, status);
    return batch.call_native(array_of_requests,
                             [&] { return next.Waitany(count, batch.natives(), index, status); });
  }
  const unsigned turn = next_turn();
  Waiting waiting;
  for (;;) {
    Pass pass;
    const Found found = look(next, batch, turn, pass, array_of_requests, status);
    if (found.done) {
      *index = found.index;
      return found.code;
    }
    waiting.idle(pass);
  }
}

int Testany(const Next& next, int count, MPI_Request array_of_requests[], int* index, int* flag,
            MPI_Status* status) {
  if (is_bad_count(count)) [[unlikely]]
    return raise_bad_count("MPI_Testany", count);
  if (!any_ours(count, array_of_requests)) [[likely]] {
    help_before_native();
    return next.Testany(count, array_of_requests, index, flag, status);
  }
  if (any_null(status, index, flag)) [[unlikely]]
    return raise_null("MPI_Testany");
  Batch batch(count, array_of_requests);
  Pass pass;
  const Found found = look(next, batch, next_turn(), pass, array_of_requests, status);
  *index = found.index;
  *flag = found.done ? 1 : 0;
  if (found.done) return found.code;
  if (!batch.any_active() && !found.native_active) {
    *flag = 1;
    set_empty(status);
  } else if (!found.native_active) {
    Process::get().poke_native();
  }
  return MPI_SUCCESS;
}

int Request_get_status_any(const Next& next, int count, const MPI_Request array_of_requests[],
                           int* index, int* flag, MPI_Status* status) {
  if (is_bad_count(count)) [[unlikely]]
    return raise_bad_count("MPI_Request_get_status_any", count);
  if (!any_ours(count, array_of_requests)) [[likely]] {
    return next.Request_get_status_any(count, array_of_requests, index, flag, status);
  }
  if (any_null(status, index, flag)) [[unlikely]]
    return raise_null("MPI_Request_get_status_any");
  Batch batch(count, array_of_requests);
  Completion completion;
  Pass pass;
  if (const Request* const ours = find_complete(batch, pass, index, &completion)) {
    *flag = 1;
    ours->fill(status);
    return MPI_SUCCESS;
  }
  if (batch.native_count() == 0 && !batch.any_active()) {
    *flag = 1;
    return complete_nothing(index, status);
  }
  *flag = 0;
  const int code = batch.native_count() > 0
                       ? next.Request_get_status_any(count, batch.natives(), index, flag, status)
                       : MPI_SUCCESS;
  if (code == MPI_SUCCESS && *flag != 0 && *index == MPI_UNDEFINED && batch.any_active()) *flag = 0;
  if (code == MPI_SUCCESS && *flag == 0) Process::get().poke_native();
  return code;
}

}  // namespace larklane::mpi::face
