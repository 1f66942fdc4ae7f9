#pragma once
// Records of threads outside MPI: parallel regions, barriers and joins, from the profiling stub
// (mpi/preload/threads.c).

#include "mpi/preload/attach.h"

namespace larklane::mpi {

/// At attach. @param watch  null: the stub does not watch threads
void set_thread_watch(void (*watch)(LarklaneThreadHook* hook)) noexcept;
/// Starts to record the events of threads.
void record_threads() noexcept;

}  // namespace larklane::mpi
