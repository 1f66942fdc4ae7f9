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

/// Good arguments, and bytes in one piece. False: look closer.
[[gnu::always_inline]] inline bool is_usual(const Peer& from, const ReceiveArguments& wanted,
                                            msg::UserBytes* bytes) {
  return can_receive(from) && find_dense(wanted.buffer, wanted.count, wanted.datatype, bytes);
}

int receive(const Call& call, msg::Communicator& owner, const ReceiveArguments& wanted,
            MPI_Status* status) {
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

[[gnu::noinline]] int ireceive_slow(const Call& call, const Peer& from,
                                    const ReceiveArguments& wanted, MPI_Request* request) {
  if (request == nullptr) [[unlikely]]
    return call.refuse(MPI_ERR_ARG, "request is a null pointer");
  return post(call, from, request, [&](Transfer& transfer) {
    return transfer.receive(call, from, wanted.buffer, wanted.count, wanted.datatype);
  });
}

[[gnu::always_inline]] inline int ireceive(const char* name, MPI_Comm comm,
                                           msg::Communicator& owner, const ReceiveArguments& wanted,
                                           MPI_Request* request) {
  msg::UserBytes bytes;
  const Peer from{owner, wanted.source, wanted.tag};
  MessageRequest* made = nullptr;
  if (request != nullptr && is_usual(from, wanted, &bytes)) [[likely]]
    made = SparePool::take();
  if (made == nullptr) [[unlikely]]
    // Copies: so the usual path keeps its arguments in registers.
    return ireceive_slow({name, comm}, {owner, wanted.source, wanted.tag}, ReceiveArguments(wanted),
                         request);
  const Status posted = made->transfer().post_receive(from, bytes);
  if (!posted.ok()) [[unlikely]] {
    made->give_back();
    return Call{name, comm}.refuse(posted, wanted.source);
  }
  made->activate(comm, from, request);
  return MPI_SUCCESS;
}

}  // namespace
}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face::direct {

#define LARKLANE_RECEIVES(Count, suffix)                                                         \
  template <const Next& next>                                                                    \
  int Recv##suffix(void* buf, Count count, MPI_Datatype datatype, int source, int tag,           \
                   MPI_Comm comm, MPI_Status* status) {                                          \
    msg::Communicator* const owner = p2p::owner_of(comm, source);                                \
    if (owner == nullptr)                                                                        \
      return p2p::forward(next.Recv##suffix, buf, count, datatype, source, tag, comm, status);   \
    return settle(p2p::receive({"MPI_Recv" #suffix, comm}, *owner,                               \
                               {buf, count, datatype, source, tag}, status));                    \
  }                                                                                              \
  template <const Next& next>                                                                    \
  int Irecv##suffix(void* buf, Count count, MPI_Datatype datatype, int source, int tag,          \
                    MPI_Comm comm, MPI_Request* request) {                                       \
    msg::Communicator* const owner = p2p::owner_of(comm, source);                                \
    if (owner == nullptr)                                                                        \
      return p2p::forward(next.Irecv##suffix, buf, count, datatype, source, tag, comm, request); \
    return settle(p2p::ireceive("MPI_Irecv" #suffix, comm, *owner,                               \
                                {buf, count, datatype, source, tag}, request));                  \
  }                                                                                              \
  LARKLANE_DIRECT_ENTRIES(Recv##suffix)                                                          \
  LARKLANE_DIRECT_ENTRIES(Irecv##suffix)

LARKLANE_RECEIVES(int, )
LARKLANE_RECEIVES(MPI_Count, _c)

}  // namespace larklane::mpi::face::direct
