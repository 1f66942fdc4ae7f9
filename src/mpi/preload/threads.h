#pragma once
// Parallel regions, barriers and joins of a profiled program (threads.c, ompt.c).

#include "mpi/preload/attach.h"

/// Tells `hook` from now on. @threads thread-safe
void larklane_watch_threads(LarklaneThreadHook* hook);
/// Whom to tell; null: nobody yet.
LarklaneThreadHook* larklane_thread_hook(void);
/// A number that no other region has, beginning with 1. @threads thread-safe
uint32_t larklane_number_region(void);

/// A thread at something that is to be told of. `busy_ns`, `delayed_ns`: as in LarklaneThreadEvent.
typedef struct LarklaneCame {
  uint64_t at_ns, busy_ns;
  int32_t delayed_ns;
} LarklaneCame;
/// The calling thread comes to it.
LarklaneCame larklane_come(void);
/// It goes on, to compute. @param address  of the place in the program: what always takes little
/// time after it is not told of  @return when
uint64_t larklane_go_on(uintptr_t address);
