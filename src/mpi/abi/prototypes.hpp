#pragma once
// The loaded MPI's header, and the types that its version lacks. The three MPI ABIs differ in
// handles, constants and statuses, so each family's library compiles this folder once.

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#if defined(LARKLANE_FAMILY_MPICH) + defined(LARKLANE_FAMILY_OMPI) + \
        defined(LARKLANE_FAMILY_ABI) !=                              \
    1
#error "define one of LARKLANE_FAMILY_MPICH, LARKLANE_FAMILY_OMPI, LARKLANE_FAMILY_ABI"
#endif
#if defined(LARKLANE_FAMILY_ABI) && !defined(MPI_ABI_VERSION)
#error "this mpi.h is not that of the MPI 5.0 standard ABI"
#endif
#if defined(LARKLANE_FAMILY_MPICH) && (!defined(MPICH_VERSION) || defined(MPI_ABI_VERSION))
#error "this mpi.h is not that of the MPICH ABI"
#endif
#if defined(LARKLANE_FAMILY_OMPI) && !defined(OMPI_MAJOR_VERSION)
#error "this mpi.h is not Open MPI's"
#endif

#if MPI_VERSION < 4
#ifdef LARKLANE_FAMILY_OMPI
typedef struct ompi_instance_t* MPI_Session;
#else
typedef int MPI_Session;
#endif
#endif
#ifdef LARKLANE_FAMILY_ABI
typedef int MPI_Fint;  // the ABI has no Fortran types; its MPI_*_fromint take int
#endif
