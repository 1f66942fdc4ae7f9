// MPI_Pready, MPI_Pready_range, MPI_Pready_list, MPI_Parrived.

#include <string>

#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/waiting.hpp"

namespace larklane::mpi {
namespace {

/// Refuses a handle that is neither ours nor a partitioned request of the MPI.
[[gnu::noinline]] int not_partitioned(const char* call, MPI_Request request) {
  return raise(nullptr, MPI_ERR_REQUEST,
               std::string(call) + ": the request is " +
                   (request == handles().request_null ? "MPI_REQUEST_NULL" : "not partitioned") +
                   ": expected a partitioned one");
}

[[gnu::noinline]] int wrong_kind(const Request& request, const char* call, const char* expected) {
  return raise_at(
      request.error_target(), MPI_ERR_REQUEST,
      std::string(call) + " on " + request.description() + ": expected a partitioned " + expected);
}

[[gnu::noinline]] int refused(const Partitioned& request, const char* call, Status status,
                              int first, int last) {
  const std::string what =
      first == last ? "partition " + std::to_string(first)
                    : "partitions " + std::to_string(first) + " to " + std::to_string(last);
  return raise_refused(request, call, status, what);
}

/// Ends MPI_Pready and MPI_Parrived with an error: their exported names lead straight to the face.
[[gnu::noinline]] int settle_refused(const Request& request, const char* call, Status status,
                                     int partition) {
  return settle(
      refused(static_cast<const Partitioned&>(request), call, status, partition, partition));
}

/// Pready of a request that is not a send of ours.
[[gnu::noinline]] int pready_of_another(const Next& next, int partition, MPI_Request request) {
  if (const Request* const ours = find_carrier(request))
    return settle(wrong_kind(*ours, "MPI_Pready", "send"));
  return is_forwarded(request) ? next.Pready(partition, request)
                               : settle(not_partitioned("MPI_Pready", request));
}

/// A call on a request that is not a send of ours. @param forward  calls the MPI
template <class Forward>
int of_another(const char* call, MPI_Request request, const Request* ours, Forward forward) {
  if (ours != nullptr) return wrong_kind(*ours, call, "send");
  return is_forwarded(request) ? forward() : not_partitioned(call, request);
}

[[gnu::noinline]] int pready_into_slot(const Request& ours, int partition) {
  const Status status = ours.send->fill_slot(static_cast<std::uint32_t>(partition));
  return status.ok() ? MPI_SUCCESS : settle_refused(ours, "MPI_Pready", status, partition);
}

/// Pready in a sampled round, or of a request with its own implementation.
[[gnu::noinline]] int pready_otherwise(const Request& ours, int partition) {
  const Status status = ours.send->pready(partition);
  return status.ok() ? MPI_SUCCESS : settle_refused(ours, "MPI_Pready", status, partition);
}

/// Parrived of a partition without an arrival mark.
[[gnu::noinline]] int look(const Request& ours, int partition, int* flag) {
  bool arrived = false;
  const Status status = ours.receive->look(partition, &arrived);
  if (!status.ok()) [[unlikely]]
    return settle_refused(ours, "MPI_Parrived", status, partition);
  *flag = arrived ? 1 : 0;
  if (!arrived) poke_now_and_then();
  return MPI_SUCCESS;
}

/// Parrived of a request that is not a receive of ours, or without a place for the result.
[[gnu::noinline]] int parrived_of_another(const Next& next, MPI_Request request, int partition,
                                          int* flag) {
  const Request* const ours = find_carrier(request);
  if (ours == nullptr && request != handles().request_null)
    return is_forwarded(request) ? next.Parrived(request, partition, flag)
                                 : settle(not_partitioned("MPI_Parrived", request));
  if (ours != nullptr && ours->kind() != Request::Kind::partitioned_receive)
    return settle(wrong_kind(*ours, "MPI_Parrived", "receive"));
  if (flag == nullptr) return settle(raise_null("MPI_Parrived"));
  *flag = 1;  // rule P2
  return MPI_SUCCESS;
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

int Pready(const Next& next, int partition, MPI_Request request) {
  const Request* const ours = find_carrier(request);
  if (ours == nullptr || ours->send == nullptr) [[unlikely]]
    return pready_of_another(next, partition, request);
  // Each branch ends with its only call, so the compiler saves no registers.
  part::SendRequest& send = *ours->send;
  const auto index = static_cast<std::uint32_t>(partition);
  if (send.has_slot(index)) return pready_into_slot(*ours, partition);
  if (!send.has_word(index)) [[unlikely]]
    return pready_otherwise(*ours, partition);
  const Status status = send.mark_word(index);
  if (!status.ok()) [[unlikely]]
    return settle_refused(*ours, "MPI_Pready", status, partition);
  return MPI_SUCCESS;
}

int Pready_range(const Next& next, int partition_low, int partition_high, MPI_Request request) {
  const Request* const found = find_carrier(request);
  const Partitioned* const ours = as_partitioned(found, Request::Kind::partitioned_send);
  if (ours == nullptr) [[unlikely]]
    return of_another("MPI_Pready_range", request, found,
                      [&] { return next.Pready_range(partition_low, partition_high, request); });
  const bool in_range = 0 <= partition_low && partition_low <= partition_high &&
                        partition_high < ours->request->partitions();
  const Status status = in_range
                            ? ours->send->pready(partition_low, partition_high - partition_low + 1)
                            : Status(Errc::kInvalidArgument);
  return status.ok() ? MPI_SUCCESS
                     : refused(*ours, "MPI_Pready_range", status, partition_low, partition_high);
}

int Pready_list(const Next& next, int length, const int array_of_partitions[],
                MPI_Request request) {
  const Request* const found = find_carrier(request);
  const Partitioned* const ours = as_partitioned(found, Request::Kind::partitioned_send);
  if (ours == nullptr) [[unlikely]]
    return of_another("MPI_Pready_list", request, found,
                      [&] { return next.Pready_list(length, array_of_partitions, request); });
  if (length < 0) [[unlikely]] {
    return raise(ours->communicator.get(), MPI_ERR_ARG,
                 "MPI_Pready_list on " + ours->description() + ": length " +
                     std::to_string(length) + ": expected 0 or more");
  }
  if (length > 0 && array_of_partitions == nullptr) [[unlikely]]
    return raise_null("MPI_Pready_list");
  for (int i = 0; i < length; ++i) {
    const int partition = array_of_partitions[i];
    if (partition < 0 || partition >= ours->request->partitions()) [[unlikely]] {
      return refused(*ours, "MPI_Pready_list", Errc::kInvalidArgument, partition, partition);
    }
  }
  if (length == 0 && !ours->request->active()) [[unlikely]] {
    return refused(*ours, "MPI_Pready_list", Errc::kNotActive, 0, 0);
  }
  for (int i = 0; i < length; ++i) {
    const Status status = ours->send->pready(array_of_partitions[i]);
    if (!status.ok()) [[unlikely]] {
      return refused(*ours, "MPI_Pready_list", status, array_of_partitions[i],
                     array_of_partitions[i]);
    }
  }
  return MPI_SUCCESS;
}

int Parrived(const Next& next, MPI_Request request, int partition, int* flag) {
  const Request* const ours = find_carrier(request);
  if (ours == nullptr || ours->receive == nullptr || flag == nullptr) [[unlikely]]
    return parrived_of_another(next, request, partition, flag);
  if (!ours->receive->has_mark(static_cast<std::uint32_t>(partition)))
    return look(*ours, partition, flag);
  *flag = 1;
  return MPI_SUCCESS;
}

}  // namespace larklane::mpi::face
