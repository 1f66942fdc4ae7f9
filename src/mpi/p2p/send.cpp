// MPI_Send and MPI_Isend, in the standard, synchronous and ready modes.

#include <string>

#include "mpi/p2p/message_request.hpp"
#include "mpi/requests/error.hpp"

namespace larklane::mpi::p2p {
namespace {

using Mode = msg::Communicator::Mode;

/// A message that is complete once it is posted: good arguments, few bytes in one piece. False:
/// look closer.
[[gnu::always_inline]] inline bool is_eager(msg::Communicator& owner, Mode mode,
                                            const SendArguments& message, msg::UserBytes* bytes) {
  return mode == Mode::standard && can_send({owner, message.dest, message.tag}) &&
         find_dense(message.buffer, message.count, message.datatype, bytes) &&
         bytes->bytes <= owner.eager_bytes_max();
}

[[gnu::always_inline]] inline int send_eager(const char* name, MPI_Comm comm,
                                             msg::Communicator& owner, const SendArguments& message,
                                             msg::UserBytes bytes) {
  const auto posted =
      owner.send(message.dest, static_cast<std::uint32_t>(message.tag), bytes, Mode::standard);
  if (!posted) [[unlikely]]
    return Call{name, comm}.refuse(posted.error(), message.dest);
  tally.note_sent(bytes.bytes);
  return MPI_SUCCESS;
}

[[gnu::noinline]] int send_slow(const Call& call, msg::Communicator& owner, Mode mode,
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

// The slow functions get copies: so the usual path keeps its arguments in registers.

[[gnu::always_inline]] inline int send(const char* name, MPI_Comm comm, msg::Communicator& owner,
                                       Mode mode, const SendArguments& message) {
  msg::UserBytes bytes;
  if (is_eager(owner, mode, message, &bytes)) [[likely]]
    return send_eager(name, comm, owner, message, bytes);
  return send_slow({name, comm}, owner, mode, SendArguments(message));
}

[[gnu::noinline]] int isend_slow(const Call& call, msg::Communicator& owner, Mode mode,
                                 const SendArguments& message, MPI_Request* request) {
  if (request == nullptr) [[unlikely]]
    return call.refuse(MPI_ERR_ARG, "request is a null pointer");
  const Peer to{owner, message.dest, message.tag};
  return post(call, to, request, [&](Transfer& transfer) {
    return transfer.send(call, to, mode, message.buffer, message.count, message.datatype);
  });
}

[[gnu::always_inline]] inline int isend(const char* name, MPI_Comm comm, msg::Communicator& owner,
                                        Mode mode, const SendArguments& message,
                                        MPI_Request* request) {
  msg::UserBytes bytes;
  if (request != nullptr && is_eager(owner, mode, message, &bytes) && give_completed_send(request))
      [[likely]]
    return send_eager(name, comm, owner, message, bytes);
  return isend_slow({name, comm}, owner, mode, SendArguments(message), request);
}

}  // namespace
}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face::direct {

#define LARKLANE_SEND(Name, Count, mode)                                                         \
  template <const Next& next>                                                                    \
  int Name(const void* buf, Count count, MPI_Datatype datatype, int dest, int tag,               \
           MPI_Comm comm) {                                                                      \
    msg::Communicator* const owner = p2p::owner_of(comm, dest);                                  \
    if (owner == nullptr) return p2p::forward(next.Name, buf, count, datatype, dest, tag, comm); \
    return settle(p2p::send("MPI_" #Name, comm, *owner, msg::Communicator::Mode::mode,           \
                            {buf, count, datatype, dest, tag}));                                 \
  }                                                                                              \
  LARKLANE_DIRECT_ENTRIES(Name)
#define LARKLANE_ISEND(Name, Count, mode)                                                         \
  template <const Next& next>                                                                     \
  int Name(const void* buf, Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, \
           MPI_Request* request) {                                                                \
    msg::Communicator* const owner = p2p::owner_of(comm, dest);                                   \
    if (owner == nullptr)                                                                         \
      return p2p::forward(next.Name, buf, count, datatype, dest, tag, comm, request);             \
    return settle(p2p::isend("MPI_" #Name, comm, *owner, msg::Communicator::Mode::mode,           \
                             {buf, count, datatype, dest, tag}, request));                        \
  }                                                                                               \
  LARKLANE_DIRECT_ENTRIES(Name)
#define LARKLANE_EACH(Count, suffix)               \
  LARKLANE_SEND(Send##suffix, Count, standard)     \
  LARKLANE_SEND(Rsend##suffix, Count, standard)    \
  LARKLANE_SEND(Ssend##suffix, Count, synchronous) \
  LARKLANE_ISEND(Isend##suffix, Count, standard)   \
  LARKLANE_ISEND(Irsend##suffix, Count, standard)  \
  LARKLANE_ISEND(Issend##suffix, Count, synchronous)

LARKLANE_EACH(int, )
LARKLANE_EACH(MPI_Count, _c)

}  // namespace larklane::mpi::face::direct
