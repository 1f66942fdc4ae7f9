// Names of every call that Larklane intercepts or makes itself, MPI_X and PMPI_X, each through
// EACH(name).
#define LARKLANE_CALL(ret, Name, params, args) EACH(MPI_##Name) EACH(PMPI_##Name)
#define LARKLANE_REAL(ret, Name, params) EACH(MPI_##Name) EACH(PMPI_##Name)
#include "mpi/abi/calls.def"
#ifndef COUNT_CALLS_ONLY  // where Larklane calls: it takes a name that is defined for one that the
                          // MPI has
#include "mpi/abi/reals.def"
#endif
#undef LARKLANE_CALL
#undef LARKLANE_REAL
