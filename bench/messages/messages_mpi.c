/* The same as messages.cpp, between two ranks of an MPI: MPI_Irecv, MPI_Isend, MPI_Waitall. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kGroups = 20 };

int main(int argc, char** argv) {
  int rank, size, is_rate;
  size_t bytes, window, rounds, stride;
  unsigned char *in, *out;
  MPI_Request* requests;
  uint64_t sent = 0, received = 0, wrong = 0, all_wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 5 || size != 2) {
    if (rank == 0) fprintf(stderr, "messages_mpi rate|latency BYTES WINDOW ROUNDS, on 2 ranks\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  is_rate = strcmp(argv[1], "rate") == 0;
  bytes = strtoull(argv[2], NULL, 10);
  window = is_rate ? strtoull(argv[3], NULL, 10) : 1;
  rounds = strtoull(argv[4], NULL, 10);
  stride = bytes < 8 ? 8 : bytes;
  in = calloc(window, stride);
  out = calloc(window, stride);
  requests = malloc(window * sizeof *requests);
  if (rank == 0) printf("{\"samples\": [");
  for (int group = -2; group < kGroups; ++group) {
    const double begin = MPI_Wtime();
    for (size_t round = 0; round < rounds; ++round)
      for (int turn = 0; turn < (is_rate ? 1 : 2); ++turn) {
        if (rank == turn) {
          for (size_t i = 0; i < window; ++i) {
            memcpy(out + i * stride, &sent, bytes < 8 ? bytes : 8);
            ++sent;
            MPI_Isend(out + i * stride, (int)bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD,
                      &requests[i]);
          }
          MPI_Waitall((int)window, requests, MPI_STATUSES_IGNORE);
          if (is_rate) MPI_Recv(NULL, 0, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
          for (size_t i = 0; i < window; ++i)
            MPI_Irecv(in + i * stride, (int)bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD,
                      &requests[i]);
          MPI_Waitall((int)window, requests, MPI_STATUSES_IGNORE);
          for (size_t i = 0; i < window; ++i, ++received)
            wrong += memcmp(in + i * stride, &received, bytes < 8 ? bytes : 8) != 0;
          if (is_rate) MPI_Send(NULL, 0, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD);
        }
      }
    if (rank == 0 && group >= 0)
      printf("%s%.1f", group == 0 ? "" : ", ",
             (MPI_Wtime() - begin) * 1e9 / (double)(is_rate ? rounds * window : 2 * rounds));
  }
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("], \"wrong\": %llu}\n", (unsigned long long)all_wrong);
  MPI_Finalize();
  return 0;
}
