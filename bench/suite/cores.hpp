#pragma once
// Binding of a thread to a core that its process may use.

#include <mpi.h>
#include <sched.h>

#include <cstdio>

namespace larklane::bench {

/// All cores of this process at the time of the first call.
inline const cpu_set_t& own_cores() {
  static const cpu_set_t cores = [] {
    cpu_set_t all;
    CPU_ZERO(&all);
    sched_getaffinity(0, sizeof all, &all);
    return all;
  }();
  return cores;
}

/// Binds the calling thread.
/// @param core  index among own_cores(), which must contain it
inline void bind_to(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  int index = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &own_cores()) && index++ == core) CPU_SET(cpu, &one);
  if (sched_setaffinity(0, sizeof one, &one) == 0) return;
  std::fprintf(stderr,
               "larklane bench: two cores are needed: run on a host that has them, unbound\n");
  MPI_Abort(MPI_COMM_WORLD, 1);
}

inline void unbind() { sched_setaffinity(0, sizeof own_cores(), &own_cores()); }

}  // namespace larklane::bench
