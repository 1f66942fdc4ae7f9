#pragma once
// Events of a profiled program's threads: parallel regions, barriers, joins (threads.c, ompt.c).

#include "mpi/preload/attach.h"

/// Sets the hook that gets all later events. @threads thread-safe
void larklane_watch_threads(LarklaneThreadHook* hook);
/// The hook; null: not set yet.
LarklaneThreadHook* larklane_thread_hook(void);
/// A number that no other region has, beginning with 1. @threads thread-safe
uint32_t larklane_number_region(void);

/// A thread at the begin of an event. `busy_ns`, `delayed_ns`: as in LarklaneThreadEvent.
typedef struct LarklaneCame {
  uint64_t at_ns, busy_ns;
  int32_t delayed_ns;
} LarklaneCame;
/// The calling thread stops to compute: the event begins.
LarklaneCame larklane_come(void);
/// The calling thread computes again. @param address  the place in the program: if computations
/// after it are always short, they are not measured  @return the time in ns
uint64_t larklane_go_on(uintptr_t address);
/// Reports the calling thread's part of a parallel region.
static inline void larklane_tell_member(LarklaneThreadHook* tell, uint64_t begin_ns,
                                        LarklaneCame end, uintptr_t body, uint32_t region,
                                        int32_t number_in_team) {
  tell(&(LarklaneThreadEvent){.begin_ns = begin_ns,
                              .end_ns = end.at_ns,
                              .value = body,
                              .region = region,
                              .threads = number_in_team,
                              .kind = kLarklaneMember,
                              .busy_ns = end.busy_ns,
                              .delayed_ns = end.delayed_ns});
}
