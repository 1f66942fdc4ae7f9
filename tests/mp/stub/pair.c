// Rank 0 sends three rounds of four partitions to rank 1, which checks every byte. A process that
// is a world of its own makes a request alone.
#include <mpi.h>
#include <stdio.h>

enum { kPartitions = 4, kBytes = 4096, kRounds = 3 };

int main(int argc, char** argv) {
  static unsigned char buffer[kPartitions * kBytes];
  MPI_Request request;
  int rank, size, wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1)
    MPI_Psend_init(buffer, kPartitions, kBytes, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &request);
  else if (rank == 0)
    MPI_Psend_init(buffer, kPartitions, kBytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &request);
  else
    MPI_Precv_init(buffer, kPartitions, kBytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &request);
  for (int round = 1; size > 1 && round <= kRounds; ++round) {
    for (int i = 0; rank == 0 && i < kPartitions * kBytes; ++i)
      buffer[i] = (unsigned char)(i + round);
    MPI_Start(&request);
    for (int i = 0; rank == 0 && i < kPartitions; ++i) MPI_Pready(i, request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < kPartitions * kBytes; ++i) wrong += buffer[i] != (unsigned char)(i + round);
  }
  MPI_Request_free(&request);
  printf("rank %d %s\n", rank, wrong ? "wrong" : "ok");
  MPI_Finalize();
  return wrong != 0;
}
