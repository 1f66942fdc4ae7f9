#pragma once
// Accepted values of LARKLANE_MPI and `larklane run --mpi`, for the preload stub (C) and the
// command (C++).

// The first leaves the choice to us.
#define LARKLANE_MPI_CHOICES "auto", "mpich", "ompi", "abi", "native"
#define LARKLANE_MPI_CHOICES_TEXT "auto, mpich, ompi, abi, native"
