#pragma once
// What LARKLANE_MPI and `larklane run --mpi` take, for the preload stub (C) and the command (C++).

// The first leaves the choice to us.
#define LARKLANE_MPI_CHOICES "auto", "mpich", "ompi", "abi", "native"
#define LARKLANE_MPI_CHOICES_TEXT "auto, mpich, ompi, abi, native"
