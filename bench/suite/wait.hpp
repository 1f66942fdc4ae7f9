#pragma once
// Waiting that leaves the processor to others: ranks and threads may be more than cores.

#include <mpi.h>
#include <sched.h>

#include "clock.hpp"

namespace larklane::bench {

/// Looks some times in a row, then lets others run between two looks.
template <class Done>
void wait_until(Done&& done) {
  constexpr unsigned kLooksBeforeYield = 200;
  for (unsigned looks = 0; !done(); ++looks)
    if (looks > kLooksBeforeYield) sched_yield();
}

/// While a guard holds a part back, for as long as what must not be on its way would need to come.
template <class Look>
void while_held(Look&& look) {
  constexpr double kHeldNs = 20e6;
  for (const double until = now_ns() + kHeldNs; now_ns() < until; sched_yield()) look();
}

inline void wait_for(MPI_Request* request) {
  wait_until([&] {
    int flag = 0;
    MPI_Test(request, &flag, MPI_STATUS_IGNORE);
    return flag != 0;
  });
}

/// Of all ranks.
inline void yielding_barrier() {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  wait_for(&request);
}

}  // namespace larklane::bench
