// Messages of programs that don't use partitioned communication (yet).

#include "mpi/communicator.hpp"
#include "mpi/profile/tracer.hpp"

namespace larklane::mpi::profiled {
namespace {

using profile::Kind;

/// One message of a call. @param request  null: the call has completed it
void write_message(const Observed& call, Kind kind, int count, MPI_Datatype datatype, int peer,
                   int tag, MPI_Comm comm, const MPI_Request* request) {
  const Route route = route_of(comm, peer);
  call.write({.value = bytes_of(count, datatype),
              .handle = request != nullptr ? handle_bits(*request) : 0,
              .a = route.peer,
              .b = tag,
              .request = static_cast<std::uint32_t>(route.context ^ (route.context >> 32)),
              .kind = kind});
}

void trace_persistent(const Observed& call, bool is_send, int count, MPI_Datatype datatype,
                      int peer, int tag, MPI_Comm comm, MPI_Request request) {
  trace_request(
      call, {static_cast<std::uint8_t>((is_send ? profile::kIsSend : 0) | profile::kIsNative), 1,
             bytes_of(count, datatype), peer, tag, comm, request});
}

}  // namespace

#define LARKLANE_SEND(Name)                                                                  \
  int Name(const Traffic& next, const void* buf, int count, MPI_Datatype datatype, int dest, \
           int tag, MPI_Comm comm) {                                                         \
    const Observed call;                                                                     \
    const int code = next.Name(buf, count, datatype, dest, tag, comm);                       \
    if (call && code == MPI_SUCCESS)                                                         \
      write_message(call, Kind::send, count, datatype, dest, tag, comm, nullptr);            \
    return code;                                                                             \
  }
LARKLANE_SEND(Send)
LARKLANE_SEND(Ssend)
LARKLANE_SEND(Rsend)

#define LARKLANE_ISEND(Name)                                                                 \
  int Name(const Traffic& next, const void* buf, int count, MPI_Datatype datatype, int dest, \
           int tag, MPI_Comm comm, MPI_Request* request) {                                   \
    const Observed call;                                                                     \
    const int code = next.Name(buf, count, datatype, dest, tag, comm, request);              \
    if (call && code == MPI_SUCCESS)                                                         \
      write_message(call, Kind::send, count, datatype, dest, tag, comm, request);            \
    return code;                                                                             \
  }
LARKLANE_ISEND(Isend)
LARKLANE_ISEND(Issend)
LARKLANE_ISEND(Irsend)

#define LARKLANE_SEND_INIT(Name)                                                             \
  int Name(const Traffic& next, const void* buf, int count, MPI_Datatype datatype, int dest, \
           int tag, MPI_Comm comm, MPI_Request* request) {                                   \
    const Observed call;                                                                     \
    const int code = next.Name(buf, count, datatype, dest, tag, comm, request);              \
    if (call && code == MPI_SUCCESS)                                                         \
      trace_persistent(call, true, count, datatype, dest, tag, comm, *request);              \
    return code;                                                                             \
  }
LARKLANE_SEND_INIT(Send_init)
LARKLANE_SEND_INIT(Ssend_init)
LARKLANE_SEND_INIT(Rsend_init)

int Recv(const Traffic& next, void* buf, int count, MPI_Datatype datatype, int source, int tag,
         MPI_Comm comm, MPI_Status* status) {
  const Observed call;
  const int code = next.Recv(buf, count, datatype, source, tag, comm, status);
  if (call && code == MPI_SUCCESS)
    write_message(call, Kind::receive, count, datatype, source, tag, comm, nullptr);
  return code;
}

int Irecv(const Traffic& next, void* buf, int count, MPI_Datatype datatype, int source, int tag,
          MPI_Comm comm, MPI_Request* request) {
  const Observed call;
  const int code = next.Irecv(buf, count, datatype, source, tag, comm, request);
  if (call && code == MPI_SUCCESS)
    write_message(call, Kind::receive, count, datatype, source, tag, comm, request);
  return code;
}

int Recv_init(const Traffic& next, void* buf, int count, MPI_Datatype datatype, int source, int tag,
              MPI_Comm comm, MPI_Request* request) {
  const Observed call;
  const int code = next.Recv_init(buf, count, datatype, source, tag, comm, request);
  if (call && code == MPI_SUCCESS)
    trace_persistent(call, false, count, datatype, source, tag, comm, *request);
  return code;
}

int Sendrecv(const Traffic& next, const void* sendbuf, int sendcount, MPI_Datatype sendtype,
             int dest, int sendtag, void* recvbuf, int recvcount, MPI_Datatype recvtype, int source,
             int recvtag, MPI_Comm comm, MPI_Status* status) {
  const Observed call;
  const int code = next.Sendrecv(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                                 recvtype, source, recvtag, comm, status);
  if (call && code == MPI_SUCCESS) {
    write_message(call, Kind::send, sendcount, sendtype, dest, sendtag, comm, nullptr);
    write_message(call, Kind::receive, recvcount, recvtype, source, recvtag, comm, nullptr);
  }
  return code;
}

}  // namespace larklane::mpi::profiled
