// MPIX_Pbuf_prepare, MPIX_Pbuf_prepareall (docs/user/prepare.md).

#include <string>

#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/requests/batch.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/waiting.hpp"

namespace larklane::mpi {
namespace {

/// Is the receiver's buffer of this round ready? A receive's Start has made it ready.
Status look(const Request& ours, bool* is_ready) {
  if (const Partitioned* const send = as_partitioned(&ours, Request::Kind::partitioned_send))
    return send->send->look_for_receiver(is_ready);
  if (ours.kind() != Request::Kind::partitioned_receive) return Errc::kWrongKind;
  *is_ready = true;
  return ours.is_active() ? Status() : Status(Errc::kNotActive);
}

int not_a_request(const char* call) {
  return raise(
      nullptr, MPI_ERR_REQUEST,
      std::string(call) + ": the request is MPI_REQUEST_NULL: expected an active partitioned one");
}

/// The MPI has its own call, or no request of it needs one.
int prepare_native(const Next& next, MPI_Request request) {
  return next.Pbuf_prepare != nullptr ? next.Pbuf_prepare(request) : MPI_SUCCESS;
}

[[gnu::noinline]] int wait_for_receiver(const Request& ours, const char* call, Status status,
                                        bool is_ready) {
  Waiting waiting;
  while (status.ok() && !is_ready) {
    waiting.idle();
    status = look(ours, &is_ready);
  }
  return status.ok() ? MPI_SUCCESS : raise_refused(ours, call, status);
}

/// @return the first entry that is refused before any wait; count: none
int first_refused(int count, const MPI_Request* requests) {
  for (int i = 0; i < count; ++i) {
    const Request* const ours = find_carrier(requests[i]);
    const bool is_refused =
        ours != nullptr ? !ours->is_active() : requests[i] == handles().request_null;
    if (is_refused) return i;
  }
  return count;
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

int Pbuf_prepare(const Next& next, MPI_Request request) {
  const Request* const ours = find_carrier(request);
  if (ours == nullptr) [[unlikely]]
    return request == handles().request_null ? not_a_request("MPIX_Pbuf_prepare")
                                             : prepare_native(next, request);
  bool is_ready = false;
  const Status status = look(*ours, &is_ready);
  if (status.ok() && is_ready) [[likely]]
    return MPI_SUCCESS;
  return wait_for_receiver(*ours, "MPIX_Pbuf_prepare", status, is_ready);
}

int Pbuf_prepareall(const Next& next, int count, const MPI_Request array_of_requests[]) {
  constexpr const char* kCall = "MPIX_Pbuf_prepareall";
  if (count < 0)
    return raise(nullptr, MPI_ERR_COUNT,
                 std::string(kCall) + ": count " + std::to_string(count) + ": expected 0 or more");
  if (count > 0 && array_of_requests == nullptr) return raise_null(kCall);
  if (const int i = first_refused(count, array_of_requests); i < count) {
    const Request* const ours = find_carrier(array_of_requests[i]);
    return ours != nullptr ? raise_refused(*ours, kCall, Errc::kNotActive) : not_a_request(kCall);
  }
  // Each wait ends by itself: no receiver's Start depends on the requests behind it.
  for (int i = 0; i < count; ++i) {
    const Request* const ours = find_carrier(array_of_requests[i]);
    const int code = ours != nullptr ? wait_for_receiver(*ours, kCall, {}, false)
                                     : prepare_native(next, array_of_requests[i]);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

}  // namespace larklane::mpi::face
