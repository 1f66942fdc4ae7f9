// MPI_Probe and MPI_Iprobe.

#include "mpi/p2p/call.hpp"
#include "mpi/requests/batch.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/requests/waiting.hpp"

namespace larklane::mpi::p2p {
namespace {

void fill(MPI_Status* status, const msg::Envelope& found) {
  set_received(status, found.source, static_cast<int>(found.tag), found.bytes);
}

[[gnu::always_inline]] inline int iprobe(const Call& call, const Peer& from, int* flag,
                                         MPI_Status* status) {
  if (any_null(status, flag)) [[unlikely]]
    return raise_null(call.name);
  const int code = check_receive(call, from);
  if (code != MPI_SUCCESS) return code;
  msg::Envelope found;
  if (!from.communicator.look(source_of(from), tag_of(from), &found)) {
    *flag = 0;
    poke_now_and_then();
    return MPI_SUCCESS;
  }
  *flag = 1;
  fill(status, found);
  return MPI_SUCCESS;
}

int probe(const Call& call, const Peer& from, MPI_Status* status) {
  if (any_null(status)) [[unlikely]]
    return raise_null(call.name);
  const int code = check_receive(call, from);
  if (code != MPI_SUCCESS) return code;
  msg::Envelope found;
  Waiting waiting;
  while (!from.communicator.look(source_of(from), tag_of(from), &found)) {
    if (from.rank != MPI_ANY_SOURCE) {
      const Status lost = from.communicator.failure_of(from.rank);
      if (!lost.ok()) return call.refuse(lost, from.rank);
    }
    waiting.idle();
  }
  fill(status, found);
  return MPI_SUCCESS;
}

}  // namespace
}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face {

int Probe(const Next& next, int source, int tag, MPI_Comm comm, MPI_Status* status) {
  msg::Communicator* const owner = p2p::owner_of(comm, source);
  if (owner == nullptr) return next.Probe(source, tag, comm, status);
  return p2p::probe({"MPI_Probe", comm}, {*owner, source, tag}, status);
}

int Iprobe(const Next& next, int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  msg::Communicator* const owner = p2p::owner_of(comm, source);
  if (owner == nullptr) return next.Iprobe(source, tag, comm, flag, status);
  return p2p::iprobe({"MPI_Iprobe", comm}, {*owner, source, tag}, flag, status);
}

}  // namespace larklane::mpi::face
