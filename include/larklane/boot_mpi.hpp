#pragma once
// Rank, size and an all-gather taken from an MPI communicator, for native programs that an MPI
// starts. Only this header needs an MPI; it is compiled with the program's own.
// Thread safety: thread-safe, as far as the MPI is.

#include <mpi.h>

#include <cstddef>
#include <limits>

#include "larklane/boot.hpp"

namespace larklane::boot {

/// The processes of `comm`.
///
/// @param comm  an intracommunicator. It lives as long as the library uses the result, and the
///              program makes no collective call on it at the same time as the library
/// @return  rank, size and an all-gather over `comm`
/// @errors  none; MPI's errors go to the communicator's handler; if that returns, the all-gather
///          returns false
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
