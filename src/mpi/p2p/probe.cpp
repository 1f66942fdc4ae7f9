// MPI_Probe and MPI_Iprobe.

#include "mpi/p2p/probe.hpp"

#include "mpi/requests/batch.hpp"
#include "mpi/requests/error.hpp"

namespace larklane::mpi::p2p {
namespace {

[[gnu::always_inline]] inline int iprobe(const char* name, MPI_Comm comm, const Peer& from,
                                         int* flag, MPI_Status* status) {
  if (any_null(status, flag)) [[unlikely]]
    return raise_null(name);
  if (!can_receive(from)) [[unlikely]]
    return check_slow({name, comm}, {from.communicator, from.rank, from.tag}, true);
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
  return await_message(call, from, status, &found, [&] {
    return from.communicator.look(source_of(from), tag_of(from), &found);
  });
}

}  // namespace
}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face {

int Probe(const Next& next, int source, int tag, MPI_Comm comm, MPI_Status* status) {
  msg::Communicator* const owner = p2p::owner_of(comm, source);
  if (owner == nullptr) {
    if (p2p::is_refused(comm)) return p2p::refuse_null({"MPI_Probe", comm});
    return next.Probe(source, tag, comm, status);
  }
  return p2p::probe({"MPI_Probe", comm}, {*owner, source, tag}, status);
}

template <const Next& next>
int direct::Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  msg::Communicator* const owner = p2p::owner_of(comm, source);
  if (owner == nullptr) {
    if (p2p::is_refused(comm)) return settle(p2p::refuse_null({"MPI_Iprobe", comm}));
    return next.Iprobe(source, tag, comm, flag, status);
  }
  return settle(p2p::iprobe("MPI_Iprobe", comm, {*owner, source, tag}, flag, status));
}
LARKLANE_DIRECT_ENTRIES(direct::Iprobe)

}  // namespace larklane::mpi::face
