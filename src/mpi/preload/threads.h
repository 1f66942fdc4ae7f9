#pragma once
// Parallel regions, barriers and joins of a profiled program (threads.c).

#include "mpi/preload/attach.h"

/// Tells `hook` from now on. @threads thread-safe
void larklane_watch_threads(LarklaneThreadHook* hook);
