// The calls on partitioned requests, and Start of all persistent requests.

#include "mpi/partitioned/carrier.hpp"
#include "mpi/profile/tracer.hpp"

namespace larklane::mpi::profiled {
namespace {

using profile::Kind;

std::uint8_t flags_of(bool is_send, MPI_Request request) noexcept {
  const bool ours = !is_native() && !is_forwarded(request);
  return static_cast<std::uint8_t>(profile::kIsPartitioned | (is_send ? profile::kIsSend : 0) |
                                   (ours ? 0 : profile::kIsNative));
}

/// Call before Pready: after the last one, another thread may complete and free the request.
/// @return  0: the request is not recorded
std::uint32_t number_of(const Observed& call, MPI_Request request) noexcept {
  const Traced* const traced = call ? find_traced(request) : nullptr;
  return traced != nullptr ? traced->number() : 0;
}

/// Call before Pready, too: after the last one, the program may write the buffer again.
void watch_partitions(const Observed& call, MPI_Request request, int first, int count) {
  if (!call || !traces_writes()) return;
  if (const Traced* const traced = find_traced(request))
    watch_writes(call.recorder(), traced->sent(first, count));
}

void write_ready(const Observed& call, std::uint32_t number, int first, int count) noexcept {
  call.write({.a = first, .b = count, .request = number, .kind = Kind::ready});
}

/// Calls use(first, count) for each run of neighbours.
template <class Use>
void each_run(int length, const int* list, Use use) {
  for (int i = 0; i < length;) {
    int count = 1;
    while (i + count < length && list[i + count] == list[i] + count) ++count;
    use(list[i], count);
    i += count;
  }
}

void write_start(const Observed& call, MPI_Request handle) {
  Traced* const request = find_traced(handle);
  if (request == nullptr) return;
  request->start(call.begin_ns());
  if (request->sends_at_start()) watch_writes(call.recorder(), request->sent(0, 1));
  call.write({.handle = handle_bits(handle), .request = request->number(), .kind = Kind::start});
}

}  // namespace

int Psend_init(const Next& next, const void* buf, int partitions, MPI_Count count,
               MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Info info,
               MPI_Request* request) {
  const Observed call;
  const int code =
      LARKLANE_BELOW(Psend_init, buf, partitions, count, datatype, dest, tag, comm, info, request);
  if (call && code == MPI_SUCCESS) {
    trace_request(call, {flags_of(true, *request), partitions, bytes_of(count, datatype), dest, tag,
                         comm, *request, send_buffer_of(buf, partitions * count, datatype)});
  }
  return code;
}

int Precv_init(const Next& next, void* buf, int partitions, MPI_Count count, MPI_Datatype datatype,
               int source, int tag, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  const Observed call;
  const int code = LARKLANE_BELOW(Precv_init, buf, partitions, count, datatype, source, tag, comm,
                                  info, request);
  if (call && code == MPI_SUCCESS) {
    trace_request(call, {flags_of(false, *request),
                         partitions,
                         bytes_of(count, datatype),
                         source,
                         tag,
                         comm,
                         *request,
                         {}});
  }
  return code;
}

int Pready(const Next& next, int partition, MPI_Request request) {
  const Observed call;
  const std::uint32_t number = number_of(call, request);
  watch_partitions(call, request, partition, 1);
  const int code = LARKLANE_BELOW(Pready, partition, request);
  if (number != 0 && code == MPI_SUCCESS) write_ready(call, number, partition, 1);
  return code;
}

int Pready_range(const Next& next, int partition_low, int partition_high, MPI_Request request) {
  const Observed call;
  const std::uint32_t number = number_of(call, request);
  watch_partitions(call, request, partition_low, partition_high - partition_low + 1);
  const int code = LARKLANE_BELOW(Pready_range, partition_low, partition_high, request);
  if (number != 0 && code == MPI_SUCCESS)
    write_ready(call, number, partition_low, partition_high - partition_low + 1);
  return code;
}

int Pready_list(const Next& next, int length, const int array_of_partitions[],
                MPI_Request request) {
  const Observed call;
  const std::uint32_t number = number_of(call, request);
  const auto watch = [&](int first, int count) { watch_partitions(call, request, first, count); };
  const auto write = [&](int first, int count) { write_ready(call, number, first, count); };
  if (traces_writes()) each_run(length, array_of_partitions, watch);
  const int code = LARKLANE_BELOW(Pready_list, length, array_of_partitions, request);
  if (number != 0 && code == MPI_SUCCESS) each_run(length, array_of_partitions, write);
  return code;
}

int Parrived(const Next& next, MPI_Request request, int partition, int* flag) {
  const Observed call;
  const int code = LARKLANE_BELOW(Parrived, request, partition, flag);
  if (Traced* const traced = call ? find_traced(request) : nullptr;
      traced != nullptr && traced->is_receive() && code == MPI_SUCCESS) {
    traced->looked(call.recorder(), partition, *flag != 0, call.begin_ns());
  }
  return code;
}

int Start(const Next& next, MPI_Request* request) {
  const Observed call;
  const int code = face::Start(next, request);
  if (call && code == MPI_SUCCESS) write_start(call, *request);
  return code;
}

int Startall(const Next& next, int count, MPI_Request array_of_requests[]) {
  const Observed call;
  const int code = face::Startall(next, count, array_of_requests);
  if (call && code == MPI_SUCCESS) {
    for (int i = 0; i < count; ++i) write_start(call, array_of_requests[i]);
  }
  return code;
}

int Request_free(const Next& next, MPI_Request* request) {
  const Observed call;
  const MPI_Request handle = call && request != nullptr ? *request : handles().request_null;
  std::unique_ptr<Traced> traced = untrace_request(handle);
  const int code = face::Request_free(next, request);
  if (!traced) return code;
  if (code == MPI_SUCCESS)
    call.write({.request = traced->number(), .kind = Kind::freed});
  else
    retrace_request(handle, std::move(traced));
  return code;
}

}  // namespace larklane::mpi::profiled
