// Messages of programs that don't use partitioned communication (yet).

#include <climits>

#include "mpi/profile/tracer.hpp"
#include "mpi/world/communicator.hpp"

namespace larklane::mpi {
namespace {

bool fits(MPI_Count count) noexcept { return count >= INT_MIN && count <= INT_MAX; }
template <class Argument>
bool fits(Argument) noexcept {
  return true;
}
int narrow(MPI_Count count) noexcept { return static_cast<int>(count); }
template <class Argument>
Argument narrow(Argument argument) noexcept {
  return argument;
}

/// A call with MPI_Count that the MPI lacks becomes the one with int: a program that looks for it
/// finds the stub's.
template <auto kPlain, class... Arguments>
void fill(int (*&call)(Arguments...)) noexcept {
  if (call != nullptr) return;
  call = [](Arguments... arguments) -> int {
    if (!(fits(arguments) && ...)) return MPI_ERR_COUNT;
    return (detail::traffic_mpi.*kPlain)(narrow(arguments)...);
  };
}

}  // namespace

void fill_large_counts(Traffic& calls) noexcept {
  fill<&Traffic::Send>(calls.Send_c);
  fill<&Traffic::Ssend>(calls.Ssend_c);
  fill<&Traffic::Rsend>(calls.Rsend_c);
  fill<&Traffic::Isend>(calls.Isend_c);
  fill<&Traffic::Issend>(calls.Issend_c);
  fill<&Traffic::Irsend>(calls.Irsend_c);
  fill<&Traffic::Recv>(calls.Recv_c);
  fill<&Traffic::Irecv>(calls.Irecv_c);
  fill<&Traffic::Sendrecv>(calls.Sendrecv_c);
  fill<&Traffic::Send_init>(calls.Send_init_c);
  fill<&Traffic::Ssend_init>(calls.Ssend_init_c);
  fill<&Traffic::Rsend_init>(calls.Rsend_init_c);
  fill<&Traffic::Recv_init>(calls.Recv_init_c);
}

}  // namespace larklane::mpi

namespace larklane::mpi::profiled {
namespace {

using profile::Kind;

/// One message of a call. @param handle  0: the call has completed it
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

/// A call that begins a message. @param result  a status, a request, or none
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

#define LARKLANE_SEND(Name, Count)                                                             \
  int Name(const Traffic& next, const void* buf, Count count, MPI_Datatype datatype, int dest, \
           int tag, MPI_Comm comm) {                                                           \
    return message(Kind::send, next.Name, buf, count, datatype, dest, tag, comm);              \
  }
#define LARKLANE_MAKE(how, kind, Name, Buffer, Count)                                              \
  int Name(const Traffic& next, Buffer buf, Count count, MPI_Datatype datatype, int peer, int tag, \
           MPI_Comm comm, MPI_Request* request) {                                                  \
    return how(Kind::kind, next.Name, buf, count, datatype, peer, tag, comm, request);             \
  }
#define LARKLANE_RECV(Name, Count)                                                             \
  int Name(const Traffic& next, void* buf, Count count, MPI_Datatype datatype, int source,     \
           int tag, MPI_Comm comm, MPI_Status* status) {                                       \
    return message(Kind::receive, next.Name, buf, count, datatype, source, tag, comm, status); \
  }
#define LARKLANE_SENDRECV(Name, Count)                                                       \
  int Name(const Traffic& next, const void* sendbuf, Count sendcount, MPI_Datatype sendtype, \
           int dest, int sendtag, void* recvbuf, Count recvcount, MPI_Datatype recvtype,     \
           int source, int recvtag, MPI_Comm comm, MPI_Status* status) {                     \
    return both(next.Name, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,  \
                recvtype, source, recvtag, comm, status);                                    \
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
