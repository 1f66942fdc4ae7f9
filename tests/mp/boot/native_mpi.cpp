// native.cpp under an MPI: the communicator says who the processes are.

#include <mpi.h>

#include "larklane/boot_mpi.hpp"
#include "meet.hpp"

int main(int argc, char** argv) {
  using larklane::boot::Board;
  MPI_Init(&argc, &argv);
  std::string problem;
  auto board = Board::open(larklane::boot::peers_of(MPI_COMM_WORLD), &problem);
  const int status = board ? larklane::boot::meet(**board, "card") : larklane::boot::fail(problem);
  MPI_Finalize();
  return status;
}
