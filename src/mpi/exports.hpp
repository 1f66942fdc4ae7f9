#pragma once
// Thread safety: immutable.

namespace larklane::mpi {

/// What this library exports under MPI's names, in the order of calls.def, MPI_X before PMPI_X.
extern void* const exported_functions[];

}  // namespace larklane::mpi
