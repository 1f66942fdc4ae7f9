// Sends that are freed before a receive is made take no memory on either side, and keep their
// places: receives that are made later are theirs. Prints `unmatched ok` on rank 0.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "resident.h"

enum { BURST = 500, GROWTH_KIB_MAX = 64 * 1024, UNMATCHED = 7, MATCHED = 8 };

static char data[64];

static MPI_Request made(int tag) {
  MPI_Request request;
  if (rank == 0)
    MPI_Psend_init(data, 4, 16, MPI_CHAR, 1, tag, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  else
    MPI_Precv_init(data, 4, 16, MPI_CHAR, 0, tag, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  return request;
}

static void exchange_one(int tag) {
  MPI_Request request = made(tag);
  for (int i = 0; i < 64; ++i) data[i] = (char)(rank == 0 ? i : -1);
  MPI_Start(&request);
  for (int p = 0; p < 4 && rank == 0; ++p) MPI_Pready(p, request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; i < 64; ++i) expect(data[i] == i, "wrong byte", i);
  MPI_Request_free(&request);
}

// `side` alone makes and frees requests; after each burst its peer has received all records.
static void make_and_free(int side, long times) {
  for (long i = 0; i < times; ++i) {
    if (rank == side) {
      MPI_Request request = made(UNMATCHED);
      MPI_Request_free(&request);
    }
    if (i % BURST == 0) exchange_one(MATCHED);
  }
}

int main(int argc, char** argv) {
  const long times = argc > 1 ? atol(argv[1]) : 100000;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  make_and_free(0, times / 2);
  const long before = resident_kib();
  make_and_free(0, times);
  expect(resident_kib() - before < GROWTH_KIB_MAX, "KiB resident", resident_kib() - before);
  make_and_free(1, times / 2 + times);
  exchange_one(UNMATCHED);
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && failures == 0) puts("unmatched ok");
  MPI_Finalize();
  return failures != 0;
}
