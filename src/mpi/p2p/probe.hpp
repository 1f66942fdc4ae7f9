#pragma once
// Shared by MPI_Probe and MPI_Mprobe.

#include "mpi/p2p/call.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/requests/waiting.hpp"

namespace larklane::mpi::p2p {

inline void fill(MPI_Status* status, const msg::Envelope& found) {
  set_received(status, found.source, static_cast<int>(found.tag), found.bytes);
}

/// Waits for a message, and fills the status. @param find  () -> bool; sets `found` if true
/// @return MPI_SUCCESS, or the error code, which is noted: the source is lost
template <class Find>
int await_message(const Call& call, const Peer& from, MPI_Status* status, msg::Envelope* found,
                  Find&& find) {
  Waiting waiting;
  while (!find()) {
    if (from.rank != MPI_ANY_SOURCE) {
      const Status lost = from.communicator.failure_of(from.rank);
      if (!lost.ok()) return call.refuse(lost, from.rank);
    }
    waiting.idle();
  }
  fill(status, *found);
  return MPI_SUCCESS;
}

}  // namespace larklane::mpi::p2p
