// MPI_Send and MPI_Isend, in the standard, synchronous and ready modes.

#include <string>

#include "mpi/p2p/message_request.hpp"

namespace larklane::mpi::p2p {
namespace {

using Mode = msg::Communicator::Mode;

[[gnu::always_inline]] inline int send(const Call& call, msg::Communicator& owner, Mode mode,
                                       const SendArguments& message) {
  Transfer transfer;
  const int code = transfer.send(call, {owner, message.dest, message.tag}, mode, message.buffer,
                                 message.count, message.datatype);
  if (code != MPI_SUCCESS || transfer.is_done()) return code;
  transfer.wait();
  if (!transfer.has_failed()) [[likely]]
    return MPI_SUCCESS;
  return raise_failed(call, transfer, "send to rank " + std::to_string(message.dest));
}

[[gnu::always_inline]] inline int isend(const Call& call, msg::Communicator& owner, Mode mode,
                                        const SendArguments& message, MPI_Request* request) {
  if (request == nullptr) [[unlikely]]
    return call.refuse(MPI_ERR_ARG, "request is a null pointer");
  const Peer to{owner, message.dest, message.tag};
  Payload payload;
  int code = check_send(call, to);
  if (code == MPI_SUCCESS)
    code = find_payload(call, message.buffer, message.count, message.datatype, &payload);
  if (code != MPI_SUCCESS) [[unlikely]]
    return code;
  const bool is_eager =
      mode == Mode::standard && !payload.is_scattered && payload.bytes <= owner.eager_bytes_max();
  if (is_eager && give_completed_send(request)) {
    Transfer transfer;
    return transfer.send(call, to, mode, payload);
  }
  return post(call, to, request, [&](Transfer& transfer) {
    return transfer.send(call, to, mode, message.buffer, message.count, message.datatype);
  });
}

}  // namespace
}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face {

#define LARKLANE_SEND(Name, Count, mode)                                                         \
  int Name(const Next& next, const void* buf, Count count, MPI_Datatype datatype, int dest,      \
           int tag, MPI_Comm comm) {                                                             \
    msg::Communicator* const owner = p2p::owner_of(comm, dest);                                  \
    if (owner == nullptr) return p2p::forward(next.Name, buf, count, datatype, dest, tag, comm); \
    return p2p::send({"MPI_" #Name, comm}, *owner, msg::Communicator::Mode::mode,                \
                     {buf, count, datatype, dest, tag});                                         \
  }
#define LARKLANE_ISEND(Name, Count, mode)                                                   \
  int Name(const Next& next, const void* buf, Count count, MPI_Datatype datatype, int dest, \
           int tag, MPI_Comm comm, MPI_Request* request) {                                  \
    msg::Communicator* const owner = p2p::owner_of(comm, dest);                             \
    if (owner == nullptr)                                                                   \
      return p2p::forward(next.Name, buf, count, datatype, dest, tag, comm, request);       \
    return p2p::isend({"MPI_" #Name, comm}, *owner, msg::Communicator::Mode::mode,          \
                      {buf, count, datatype, dest, tag}, request);                          \
  }
#define LARKLANE_EACH(Count, suffix)               \
  LARKLANE_SEND(Send##suffix, Count, standard)     \
  LARKLANE_SEND(Rsend##suffix, Count, standard)    \
  LARKLANE_SEND(Ssend##suffix, Count, synchronous) \
  LARKLANE_ISEND(Isend##suffix, Count, standard)   \
  LARKLANE_ISEND(Irsend##suffix, Count, standard)  \
  LARKLANE_ISEND(Issend##suffix, Count, synchronous)

LARKLANE_EACH(int, )
LARKLANE_EACH(MPI_Count, _c)

}  // namespace larklane::mpi::face
