#pragma once
// The progress hook: the MPI calls it inside its own calls, so that ordinary messages of ours
// progress while the program waits there.

#include "msg/protocol/engine.hpp"

namespace larklane::mpi::p2p {

/// Registers the hook with the loaded MPI: MPICH from 4.3 on, Open MPI. Call it in MPI_Init only,
/// on the calling thread: Open MPI's registration races with threads inside the MPI.
/// @param engine  outlives stop_hook() @return false: this MPI has none
bool start_hook(msg::Engine& engine);
/// Before the MPI's finalisation, in which MPICH waits for the hook's end. The hook no longer
/// enters the engine.
void stop_hook() noexcept;

}  // namespace larklane::mpi::p2p
