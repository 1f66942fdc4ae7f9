// Requests of one datatype of millions of blocks cost little before their first round: neither
// lists of blocks, nor library memory for the bytes. Prints `blocks ok` on rank 0.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "resident.h"

enum { BLOCKS = 5000000, REQUESTS = 12, ROUNDS = 3, GROWTH_KIB_MAX = 1024 };

// CPU time of this thread.
static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void init(float* buffer, MPI_Datatype type, int tag, MPI_Request* request) {
  if (rank == 0)
    MPI_Psend_init(buffer, 1, 1, type, 1, tag, MPI_COMM_WORLD, MPI_INFO_NULL, request);
  else
    MPI_Precv_init(buffer, 1, 1, type, 0, tag, MPI_COMM_WORLD, MPI_INFO_NULL, request);
}

static void run_round(float* buffer, int round, MPI_Request* request) {
  for (long i = 0; i < 2L * BLOCKS; ++i) buffer[i] = rank == 0 ? (float)(i % 4099 + round) : -1;
  MPI_Start(request);
  if (rank == 0) MPI_Pready(0, *request);
  MPI_Wait(request, MPI_STATUS_IGNORE);
  long wrong = 0;
  for (long i = 0; i < 2L * BLOCKS && rank == 1; ++i)
    wrong += buffer[i] != (i % 2 == 0 ? (float)(i % 4099 + round) : -1);
  expect(wrong == 0, "wrong numbers", wrong);
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Datatype type;
  MPI_Type_vector(BLOCKS, 1, 2, MPI_FLOAT, &type);
  MPI_Type_commit(&type);
  const double before_filling = seconds();
  float* const buffer = malloc(2L * BLOCKS * sizeof *buffer);
  for (long i = 0; i < 2L * BLOCKS; ++i) buffer[i] = 0;
  const double filling = seconds() - before_filling;
  float small[2] = {0, 0};
  MPI_Request requests[REQUESTS], first[REQUESTS];
  // The engine, the pair's connection, and as many requests as the MPI has to have memory for.
  for (int i = 0; i < REQUESTS; ++i) init(small, MPI_FLOAT, REQUESTS + i, &first[i]);
  MPI_Barrier(MPI_COMM_WORLD);
  const long resident = resident_kib();
  const double before = seconds();
  for (int i = 0; i < REQUESTS; ++i) init(buffer, type, i, &requests[i]);
  const double making = seconds() - before;
  expect(resident_kib() - resident < GROWTH_KIB_MAX, "KiB resident", resident_kib() - resident);
  // Memory for the bytes of all would cost about as much as the buffer, for each.
  expect(making < 2 * filling, "microseconds", (long)(making * 1e6));
  for (int round = 0; round < ROUNDS; ++round) run_round(buffer, round, &requests[0]);
  run_round(buffer, ROUNDS, &requests[REQUESTS - 1]);
  for (int i = 0; i < REQUESTS; ++i) {
    MPI_Request_free(&requests[i]);
    MPI_Request_free(&first[i]);
  }
  MPI_Type_free(&type);
  free(buffer);
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && failures == 0) puts("blocks ok");
  MPI_Finalize();
  return failures != 0;
}
