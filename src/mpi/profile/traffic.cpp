// Records of messages that are not partitioned.

#include "mpi/profile/tracer.hpp"
#include "mpi/world/communicator.hpp"

namespace larklane::mpi::profiled {
namespace {

using profile::Kind;

/// Records one message of a call. @param handle  0: the call has completed the message
void write_message(const Observed& call, Kind kind, const void* buffer, MPI_Count count,
                   MPI_Datatype datatype, int peer, int tag, MPI_Comm comm, std::uint64_t handle) {
  if (kind == Kind::send) record_sent(call, send_buffer_of(buffer, count, datatype), 0);
  const Route route = route_of(comm, peer);
  call.write({.value = bytes_of(count, datatype),
              .handle = handle,
              .a = route.peer,
              .b = tag,
              .request = static_cast<std::uint32_t>(route.context ^ (route.context >> 32)),
              .kind = kind});
}

std::uint64_t handle_of() { return 0; }
std::uint64_t handle_of(const MPI_Status*) { return 0; }
std::uint64_t handle_of(const MPI_Request* request) { return handle_bits(*request); }

/// Makes and records a call that begins a message. @param result  a status, a request, or none
template <class Call, class Buffer, class Count, class... Result>
int message(Kind kind, Call next, Buffer buffer, Count count, MPI_Datatype datatype, int peer,
            int tag, MPI_Comm comm, Result... result) {
  const Observed call;
  const int code = next(buffer, count, datatype, peer, tag, comm, result...);
  if (call && code == MPI_SUCCESS)
    write_message(call, kind, buffer, count, datatype, peer, tag, comm, handle_of(result...));
  return code;
}

template <class Call, class Buffer, class Count>
int persistent(Kind kind, Call next, Buffer buffer, Count count, MPI_Datatype datatype, int peer,
               int tag, MPI_Comm comm, MPI_Request* request) {
  const Observed call;
  const int code = next(buffer, count, datatype, peer, tag, comm, request);
  if (call && code == MPI_SUCCESS) {
    const int side = kind == Kind::send ? profile::kIsSend : 0;
    trace_request(
        call, {static_cast<std::uint8_t>(side | profile::kIsNative), 1, bytes_of(count, datatype),
               peer, tag, comm, *request,
               kind == Kind::send ? send_buffer_of(buffer, count, datatype) : SendBuffer{}});
  }
  return code;
}

template <class Call, class Count>
int both(Call next, const void* sendbuf, Count sendcount, MPI_Datatype sendtype, int dest,
         int sendtag, void* recvbuf, Count recvcount, MPI_Datatype recvtype, int source,
         int recvtag, MPI_Comm comm, MPI_Status* status) {
  const Observed call;
  const int code = next(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype,
                        source, recvtag, comm, status);
  if (call && code == MPI_SUCCESS) {
    write_message(call, Kind::send, sendbuf, sendcount, sendtype, dest, sendtag, comm, 0);
    write_message(call, Kind::receive, recvbuf, recvcount, recvtype, source, recvtag, comm, 0);
  }
  return code;
}

}  // namespace

#define LARKLANE_FACE(Name) [&](auto... arguments) { return face::Name(next, arguments...); }
#define LARKLANE_SEND(Name, Count)                                                          \
  int Name(const Next& next, const void* buf, Count count, MPI_Datatype datatype, int dest, \
           int tag, MPI_Comm comm) {                                                        \
    return message(Kind::send, LARKLANE_FACE(Name), buf, count, datatype, dest, tag, comm); \
  }
#define LARKLANE_MAKE(how, kind, Name, Buffer, Count)                                            \
  int Name(const Next& next, Buffer buf, Count count, MPI_Datatype datatype, int peer, int tag,  \
           MPI_Comm comm, MPI_Request* request) {                                                \
    return how(Kind::kind, LARKLANE_FACE(Name), buf, count, datatype, peer, tag, comm, request); \
  }
#define LARKLANE_RECV(Name, Count)                                                               \
  int Name(const Next& next, void* buf, Count count, MPI_Datatype datatype, int source, int tag, \
           MPI_Comm comm, MPI_Status* status) {                                                  \
    return message(Kind::receive, LARKLANE_FACE(Name), buf, count, datatype, source, tag, comm,  \
                   status);                                                                      \
  }
#define LARKLANE_SENDRECV(Name, Count)                                                     \
  int Name(const Next& next, const void* sendbuf, Count sendcount, MPI_Datatype sendtype,  \
           int dest, int sendtag, void* recvbuf, Count recvcount, MPI_Datatype recvtype,   \
           int source, int recvtag, MPI_Comm comm, MPI_Status* status) {                   \
    return both(LARKLANE_FACE(Name), sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, \
                recvcount, recvtype, source, recvtag, comm, status);                       \
  }
#define LARKLANE_EACH(Count, suffix)                                      \
  LARKLANE_SEND(Send##suffix, Count)                                      \
  LARKLANE_SEND(Ssend##suffix, Count)                                     \
  LARKLANE_SEND(Rsend##suffix, Count)                                     \
  LARKLANE_RECV(Recv##suffix, Count)                                      \
  LARKLANE_SENDRECV(Sendrecv##suffix, Count)                              \
  LARKLANE_MAKE(message, send, Isend##suffix, const void*, Count)         \
  LARKLANE_MAKE(message, send, Issend##suffix, const void*, Count)        \
  LARKLANE_MAKE(message, send, Irsend##suffix, const void*, Count)        \
  LARKLANE_MAKE(message, receive, Irecv##suffix, void*, Count)            \
  LARKLANE_MAKE(persistent, send, Send_init##suffix, const void*, Count)  \
  LARKLANE_MAKE(persistent, send, Ssend_init##suffix, const void*, Count) \
  LARKLANE_MAKE(persistent, send, Rsend_init##suffix, const void*, Count) \
  LARKLANE_MAKE(persistent, receive, Recv_init##suffix, void*, Count)

LARKLANE_EACH(int, )
LARKLANE_EACH(MPI_Count, _c)

}  // namespace larklane::mpi::profiled
