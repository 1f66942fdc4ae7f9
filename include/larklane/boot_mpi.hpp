#pragma once
// For native programs that are started by an MPI: its communicator says who they are. Nothing else
// of the library needs an MPI; this header is compiled with the program's.
// Thread safety: thread-safe, as far as the MPI is.

#include <mpi.h>

#include <cstddef>
#include <limits>

#include "larklane/boot.hpp"

namespace larklane::boot {

/// The processes of `comm`.
///
/// @param comm  an intracommunicator that lives, and on which the program makes no collective call
///              at the same time, as long as the library uses what is returned
/// @errors  none; MPI's errors go to the communicator's handler, and if that returns, the
/// all-gather
///          is false
inline Peers peers_of(MPI_Comm comm) {
  Peers peers;
  MPI_Comm_rank(comm, &peers.rank);
  MPI_Comm_size(comm, &peers.size);
  peers.all_gather = [comm](const void* own, std::size_t bytes, void* all) {
    if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max())) return false;
    const int count = static_cast<int>(bytes);
    return MPI_Allgather(own, count, MPI_BYTE, all, count, MPI_BYTE, comm) == MPI_SUCCESS;
  };
  return peers;
}

}  // namespace larklane::boot
