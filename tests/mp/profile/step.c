/* step [STEPS]: a stencil on a block of 256 rows of 4096 cells. Its last row goes to this same
 * process in 16 partitions and comes back as its halo: as many calls as a program with threads
 * makes, without any wait. With --plain the row is sent by Isend; with --threads, too, and two
 * threads compute. Prints "ok". Under callgrind, with --instr-atstart=no, the steps after the first
 * are counted: the instructions of start and end depend on how long an MPI waits there. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#endif

enum { kRows = 256, kColumns = 4096, kPartitions = 16, kWidth = kColumns / kPartitions };

static double grid[2][kRows + 1][kColumns];

static void update(int step, int row, int first, int last) {
  const double *above = grid[step % 2][row - 1], *here = grid[step % 2][row];
  double* there = grid[(step + 1) % 2][row];
  for (int j = first; j < last; ++j) there[j] = 0.5 * here[j] + 0.25 * (above[j] + here[j]);
}

static void run(int steps, int plain, int threads) {
  int self;
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  MPI_Request requests[2];
  double *halo = malloc(sizeof grid[0][0]), *edge = malloc(sizeof grid[0][0]);
  if (!plain) {
    MPI_Precv_init(halo, kPartitions, kWidth, MPI_DOUBLE, self, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &requests[0]);
    MPI_Psend_init(edge, kPartitions, kWidth, MPI_DOUBLE, self, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &requests[1]);
  }
  for (int step = 0; step < steps; ++step) {
    if (step == 1) CALLGRIND_START_INSTRUMENTATION;
    if (!plain) MPI_Startall(2, requests);
    if (threads == 1)
      for (int row = 1; row < kRows; ++row) update(step, row, 0, kColumns);
    else
#pragma omp parallel for num_threads(threads)
      for (int row = 1; row < kRows; ++row) update(step, row, 0, kColumns);
    for (int p = 0; p < kPartitions; ++p) {
      update(step, kRows, p * kWidth, (p + 1) * kWidth);
      memcpy(edge + p * kWidth, grid[(step + 1) % 2][kRows] + p * kWidth, kWidth * sizeof *edge);
      if (!plain) MPI_Pready(p, requests[1]);
    }
    if (plain) {
      MPI_Irecv(halo, kColumns, MPI_DOUBLE, self, 0, MPI_COMM_WORLD, &requests[0]);
      MPI_Isend(edge, kColumns, MPI_DOUBLE, self, 0, MPI_COMM_WORLD, &requests[1]);
    }
    for (int p = 0, arrived = 0; p < kPartitions && !plain; p += arrived)
      MPI_Parrived(requests[0], p, &arrived);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    memcpy(grid[(step + 1) % 2][0], halo, sizeof grid[0][0]);
  }
  CALLGRIND_STOP_INSTRUMENTATION;
  for (int i = 0; i < 2 && !plain; ++i) MPI_Request_free(&requests[i]);
  free(halo);
  free(edge);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int threaded = argc > 2 && strcmp(argv[2], "--threads") == 0;
  run(argc > 1 ? atoi(argv[1]) : 10, argc > 2, threaded ? 2 : 1);
  printf("ok\n");
  MPI_Finalize();
  return 0;
}
