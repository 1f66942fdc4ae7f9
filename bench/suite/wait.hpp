#pragma once
// Waiting that leaves the processor to others: there may be more ranks and threads than cores.

#include <mpi.h>
#include <sched.h>

#include "clock.hpp"

namespace larklane::bench {

/// Polls 200 times, then yields after each further poll.
template <class Done>
void wait_until(Done&& done) {
  constexpr unsigned kLooksBeforeYield = 200;
  for (unsigned looks = 0; !done(); ++looks)
    if (looks > kLooksBeforeYield) sched_yield();
}

/// Polls while a guard holds a part back, long enough for a part that is sent too early to arrive.
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

/// A barrier of all ranks.
inline void yielding_barrier() {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  wait_for(&request);
}

}  // namespace larklane::bench
