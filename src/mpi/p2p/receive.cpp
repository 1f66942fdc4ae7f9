// MPI_Recv and MPI_Irecv.

#include "mpi/p2p/message_request.hpp"
#include "mpi/requests/batch.hpp"
#include "mpi/requests/error.hpp"

namespace larklane::mpi::p2p {
namespace {

/// The arguments of a receive. Thread safety: immutable.
struct ReceiveArguments {
  void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
  int source, tag;
};

[[gnu::always_inline]] inline int receive(const Call& call, msg::Communicator& owner,
                                          const ReceiveArguments& wanted, MPI_Status* status) {
  if (any_null(status)) [[unlikely]]
    return raise_null(call.name);
  Transfer transfer;
  const int code = transfer.receive(call, {owner, wanted.source, wanted.tag}, wanted.buffer,
                                    wanted.count, wanted.datatype);
  if (code != MPI_SUCCESS) return code;
  transfer.wait();
  transfer.fill(status);
  if (!transfer.has_failed()) [[likely]]
    return MPI_SUCCESS;
  return raise_failed(call, transfer, describe_message(true, wanted.source, wanted.tag));
}

[[gnu::always_inline]] inline int ireceive(const Call& call, msg::Communicator& owner,
                                           const ReceiveArguments& wanted, MPI_Request* request) {
  if (request == nullptr) [[unlikely]]
    return call.refuse(MPI_ERR_ARG, "request is a null pointer");
  const Peer from{owner, wanted.source, wanted.tag};
  return post(call, from, request, [&](Transfer& transfer) {
    return transfer.receive(call, from, wanted.buffer, wanted.count, wanted.datatype);
  });
}

}  // namespace
}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face {

#define LARKLANE_RECEIVES(Count, suffix)                                                           \
  int Recv##suffix(const Next& next, void* buf, Count count, MPI_Datatype datatype, int source,    \
                   int tag, MPI_Comm comm, MPI_Status* status) {                                   \
    msg::Communicator* const owner = p2p::owner_of(comm, source);                                  \
    if (owner == nullptr)                                                                          \
      return p2p::forward(next.Recv##suffix, buf, count, datatype, source, tag, comm, status);     \
    return p2p::receive({"MPI_Recv" #suffix, comm}, *owner, {buf, count, datatype, source, tag},   \
                        status);                                                                   \
  }                                                                                                \
  int Irecv##suffix(const Next& next, void* buf, Count count, MPI_Datatype datatype, int source,   \
                    int tag, MPI_Comm comm, MPI_Request* request) {                                \
    msg::Communicator* const owner = p2p::owner_of(comm, source);                                  \
    if (owner == nullptr)                                                                          \
      return p2p::forward(next.Irecv##suffix, buf, count, datatype, source, tag, comm, request);   \
    return p2p::ireceive({"MPI_Irecv" #suffix, comm}, *owner, {buf, count, datatype, source, tag}, \
                         request);                                                                 \
  }

LARKLANE_RECEIVES(int, )
LARKLANE_RECEIVES(MPI_Count, _c)

}  // namespace larklane::mpi::face
