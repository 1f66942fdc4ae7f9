#pragma once
// What threads do outside MPI: parallel regions, barriers, joins, as the profiling stub sees them
// (mpi/preload/threads.c).

#include "mpi/preload/attach.h"

namespace larklane::mpi {

/// At attach. @param watch  null: the stub does not watch threads
void set_thread_watch(void (*watch)(LarklaneThreadHook* hook)) noexcept;
/// From now on they are in the profile.
void record_threads() noexcept;

}  // namespace larklane::mpi
