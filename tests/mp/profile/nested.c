/* Rank 0 sends rows, each written in a region of one thread by one of four threads; the last one's
 * region asks for two, which OpenMP does not give. Prints "ok". */
#include <mpi.h>
#include <omp.h>
#include <stdio.h>

enum { kRounds = 8, kThreads = 4, kCount = 1000 };
static double rows[kThreads][kCount];

static void fill(double* row) {
#pragma omp for
  for (int i = 0; i < kCount; ++i) row[i] = i;
}

int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  omp_set_max_active_levels(1);
  for (int round = 0; round < kRounds; ++round) {
#pragma omp parallel num_threads(kThreads)
    {
      const int thread = omp_get_thread_num();
#pragma omp parallel num_threads(thread + 1 == kThreads ? 2 : 1)
      fill(rows[thread]);
    }
    if (rank == 0) MPI_Send(rows, kThreads * kCount, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD);
    if (rank == 1)
      MPI_Recv(rows, kThreads * kCount, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  printf("ok\n");
  MPI_Finalize();
  return 0;
}
