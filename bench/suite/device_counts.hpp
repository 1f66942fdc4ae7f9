#pragma once
// Counts the requests to an RDMA device: its own counters, or those of a preloaded doorbells.so.

#include <dlfcn.h>
#include <glob.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace larklane::bench {

/// Packets that the devices of this host have sent, from the counters of Soft-RoCE or of other
/// ports.
/// @return -1 if the host has no such counter
inline long packets_sent() {
  long total = -1;
  for (const char* const pattern : {"/sys/class/infiniband/*/ports/*/hw_counters/sent_pkts",
                                    "/sys/class/infiniband/*/ports/*/counters/port_xmit_packets"}) {
    glob_t found;
    if (total >= 0 || ::glob(pattern, 0, nullptr, &found) != 0) continue;
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      long count = 0;
      if (std::ifstream(found.gl_pathv[i]) >> count) total = (total < 0 ? 0 : total) + count;
    }
    ::globfree(&found);
  }
  return total;
}

inline long doorbells_rung() {
  void* const found = ::dlsym(RTLD_DEFAULT, "doorbells_rung");
  return found != nullptr ? reinterpret_cast<long (*)()>(found)() : -1;
}

/// The sum of both ranks, after the messages in flight have been acknowledged. Collective.
inline long counted(const std::string& what) {
  constexpr useconds_t kSettleUs = 100000;
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  ::usleep(kSettleUs);
  // A host's packets include those of both ranks.
  long own = what == "doorbells" ? doorbells_rung() : rank == 0 ? packets_sent() : 0;
  if (own < 0) {
    std::fprintf(stderr, "larklane bench: --count %s: nothing here counts them\n", what.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  ::usleep(kSettleUs);
  return own;
}

}  // namespace larklane::bench
