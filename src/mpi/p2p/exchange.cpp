// MPI_Sendrecv, MPI_Isendrecv, and their forms that replace the sent bytes.

#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "mpi/p2p/message_request.hpp"
#include "mpi/requests/batch.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/status.hpp"
#include "shm/copy.hpp"

namespace larklane::mpi::p2p {
namespace {

/// Both messages of a call. Thread safety: immutable.
struct Exchange {
  const void* send_buffer;
  MPI_Count send_count;
  MPI_Datatype send_type;
  int dest, send_tag;
  void* receive_buffer;
  MPI_Count receive_count;
  MPI_Datatype receive_type;
  int source, receive_tag;
};

/// The engine's communicator of a call with two peers; null: the MPI serves it.
msg::Communicator* owner_of_both(MPI_Comm comm, int dest, int source) noexcept {
  const bool is_null = dest == MPI_PROC_NULL && source == MPI_PROC_NULL;
  return owner_of(comm, is_null ? MPI_PROC_NULL : MPI_ANY_SOURCE);
}

int post_receive(const Call& call, msg::Communicator& owner, const Exchange& both,
                 Transfer& transfer) {
  if (both.source == MPI_PROC_NULL) return transfer.receive_null();
  return transfer.receive(call, {owner, both.source, both.receive_tag}, both.receive_buffer,
                          both.receive_count, both.receive_type);
}

int post_send(const Call& call, msg::Communicator& owner, const Exchange& both,
              Transfer& transfer) {
  if (both.dest == MPI_PROC_NULL) return MPI_SUCCESS;
  return transfer.send(call, {owner, both.dest, both.send_tag}, msg::Communicator::Mode::standard,
                       both.send_buffer, both.send_count, both.send_type);
}

/// All arguments of the send, before the receive is posted.
int check_arguments(const Call& call, msg::Communicator& owner, const Exchange& both) {
  if (both.dest == MPI_PROC_NULL) return MPI_SUCCESS;
  const int code = check_send(call, {owner, both.dest, both.send_tag});
  Payload payload;
  return code != MPI_SUCCESS
             ? code
             : find_payload(call, both.send_buffer, both.send_count, both.send_type, &payload);
}

int exchange(const Call& call, msg::Communicator& owner, const Exchange& both, MPI_Status* status) {
  if (any_null(status)) [[unlikely]]
    return raise_null(call.name);
  int code = check_arguments(call, owner, both);
  Transfer receive, send;
  if (code == MPI_SUCCESS) code = post_receive(call, owner, both, receive);
  if (code != MPI_SUCCESS) return code;
  code = post_send(call, owner, both, send);
  if (code != MPI_SUCCESS) static_cast<void>(receive.cancel());
  send.wait();
  receive.wait();
  if (code != MPI_SUCCESS) return code;
  receive.fill(status);
  if (receive.has_failed())
    return raise_failed(call, receive, describe_message(true, both.source, both.receive_tag));
  return send.has_failed() ? raise_failed(call, send, "send to rank " + std::to_string(both.dest))
                           : MPI_SUCCESS;
}

int iexchange(const Call& call, msg::Communicator& owner, const Exchange& both,
              std::unique_ptr<std::byte[]> copy, MPI_Request* request) {
  if (request == nullptr) [[unlikely]]
    return call.refuse(MPI_ERR_ARG, "request is a null pointer");
  int code = check_arguments(call, owner, both);
  if (code != MPI_SUCCESS) return code;
  MessageRequest* const made = MessageRequest::take(call, &code);
  if (made == nullptr) return code;
  Transfer& send = made->second(std::move(copy));
  code = post_receive(call, owner, both, made->transfer());
  if (code == MPI_SUCCESS) {
    code = post_send(call, owner, both, send);
    if (code != MPI_SUCCESS) {
      static_cast<void>(made->transfer().cancel());
      made->transfer().wait();
    }
  }
  if (code != MPI_SUCCESS) {
    made->give_back();
    return code;
  }
  made->activate(call.comm, {owner, both.source, both.receive_tag}, request);
  return MPI_SUCCESS;
}

/// The sent bytes of a call that replaces them, packed; they are sent as MPI_BYTE.
struct Replaced {
  std::unique_ptr<std::byte[]> copy;
  Exchange both;
};
int copy_out(const Call& call, void* buffer, MPI_Count count, MPI_Datatype datatype, int dest,
             int send_tag, int source, int receive_tag, Replaced* made) {
  Payload payload;
  int code = find_payload(call, buffer, count, datatype, &payload);
  if (code != MPI_SUCCESS) return code;
  if (payload.is_scattered) {
    auto packed = make_packed(call, payload, datatype, &code);
    if (packed == nullptr) return code;
    packed->pack(payload.bytes);
    made->copy = std::move(packed->bytes);
  } else {
    made->copy.reset(new (std::nothrow) std::byte[payload.bytes]);
    if (made->copy == nullptr)
      return call.refuse(MPI_ERR_NO_MEM,
                         "no memory to copy " + std::to_string(payload.bytes) + " bytes");
    if (payload.bytes != 0) std::memcpy(made->copy.get(), payload.start, payload.bytes);
  }
  made->both = {made->copy.get(),
                static_cast<MPI_Count>(payload.bytes),
                handles().byte,
                dest,
                send_tag,
                buffer,
                count,
                datatype,
                source,
                receive_tag};
  return MPI_SUCCESS;
}

}  // namespace
}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face {

#define LARKLANE_EXCHANGES(Count, suffix)                                                        \
  int Sendrecv##suffix(const Next& next, const void* sendbuf, Count sendcount,                   \
                       MPI_Datatype sendtype, int dest, int sendtag, void* recvbuf,              \
                       Count recvcount, MPI_Datatype recvtype, int source, int recvtag,          \
                       MPI_Comm comm, MPI_Status* status) {                                      \
    const p2p::Exchange both{sendbuf, sendcount, sendtype, dest,   sendtag,                      \
                             recvbuf, recvcount, recvtype, source, recvtag};                     \
    msg::Communicator* const owner = p2p::owner_of_both(comm, dest, source);                     \
    if (owner == nullptr)                                                                        \
      return p2p::forward(next.Sendrecv##suffix, sendbuf, sendcount, sendtype, dest, sendtag,    \
                          recvbuf, recvcount, recvtype, source, recvtag, comm, status);          \
    return p2p::exchange({"MPI_Sendrecv" #suffix, comm}, *owner, both, status);                  \
  }                                                                                              \
  int Isendrecv##suffix(const Next& next, const void* sendbuf, Count sendcount,                  \
                        MPI_Datatype sendtype, int dest, int sendtag, void* recvbuf,             \
                        Count recvcount, MPI_Datatype recvtype, int source, int recvtag,         \
                        MPI_Comm comm, MPI_Request* request) {                                   \
    const p2p::Exchange both{sendbuf, sendcount, sendtype, dest,   sendtag,                      \
                             recvbuf, recvcount, recvtype, source, recvtag};                     \
    msg::Communicator* const owner = p2p::owner_of_both(comm, dest, source);                     \
    if (owner == nullptr)                                                                        \
      return p2p::forward(next.Isendrecv##suffix, sendbuf, sendcount, sendtype, dest, sendtag,   \
                          recvbuf, recvcount, recvtype, source, recvtag, comm, request);         \
    return p2p::iexchange({"MPI_Isendrecv" #suffix, comm}, *owner, both, nullptr, request);      \
  }                                                                                              \
  int Sendrecv_replace##suffix(const Next& next, void* buf, Count count, MPI_Datatype datatype,  \
                               int dest, int sendtag, int source, int recvtag, MPI_Comm comm,    \
                               MPI_Status* status) {                                             \
    msg::Communicator* const owner = p2p::owner_of_both(comm, dest, source);                     \
    if (owner == nullptr)                                                                        \
      return p2p::forward(next.Sendrecv_replace##suffix, buf, count, datatype, dest, sendtag,    \
                          source, recvtag, comm, status);                                        \
    const p2p::Call call{"MPI_Sendrecv_replace" #suffix, comm};                                  \
    p2p::Replaced made;                                                                          \
    const int code =                                                                             \
        p2p::copy_out(call, buf, count, datatype, dest, sendtag, source, recvtag, &made);        \
    return code != MPI_SUCCESS ? code : p2p::exchange(call, *owner, made.both, status);          \
  }                                                                                              \
  int Isendrecv_replace##suffix(const Next& next, void* buf, Count count, MPI_Datatype datatype, \
                                int dest, int sendtag, int source, int recvtag, MPI_Comm comm,   \
                                MPI_Request* request) {                                          \
    msg::Communicator* const owner = p2p::owner_of_both(comm, dest, source);                     \
    if (owner == nullptr)                                                                        \
      return p2p::forward(next.Isendrecv_replace##suffix, buf, count, datatype, dest, sendtag,   \
                          source, recvtag, comm, request);                                       \
    const p2p::Call call{"MPI_Isendrecv_replace" #suffix, comm};                                 \
    p2p::Replaced made;                                                                          \
    const int code =                                                                             \
        p2p::copy_out(call, buf, count, datatype, dest, sendtag, source, recvtag, &made);        \
    if (code != MPI_SUCCESS) return code;                                                        \
    return p2p::iexchange(call, *owner, made.both, std::move(made.copy), request);               \
  }

LARKLANE_EXCHANGES(int, )
LARKLANE_EXCHANGES(MPI_Count, _c)

}  // namespace larklane::mpi::face
