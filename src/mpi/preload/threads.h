#pragma once
// Parallel regions, barriers and joins of a profiled program (threads.c, ompt.c).

#include "mpi/preload/attach.h"

/// Tells `hook` from now on. @threads thread-safe
void larklane_watch_threads(LarklaneThreadHook* hook);
/// Whom to tell; null: nobody yet.
LarklaneThreadHook* larklane_thread_hook(void);
/// A number that no other region has, beginning with 1. @threads thread-safe
uint32_t larklane_number_region(void);
uint64_t larklane_now_ns(void);
