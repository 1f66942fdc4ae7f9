/* Rank 0 sends, three times each, buffers of 64 KiB: one in which each of 4 threads writes a
 * quarter, thread 0 by read(2); one that thread 0 packs; a persistent send; a partitioned one. Rank
 * 1 checks whether all has come. Rank 0 prints their places; each thread of it sends a message to
 * MPI_PROC_NULL, with 100 + its number as tag. Prints "ok". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kRounds = 3, kThreads = 4, kQuarter = 16384, kBytes = kThreads * kQuarter };
enum { kShared, kPacked, kPersistent, kPartitioned, kBuffers };
static const char* const kNames[] = {"shared", "packed", "persistent", "partitioned"};
static char computed[kBytes];
static int failures;

static void fill(char* buffer, int thread, int round) {
  memset(buffer + thread * kQuarter, round + thread + 1, kQuarter);
}

/* The kernel writes the first quarter. */
static void fill_by_read(char* buffer, int round) {
  int pipes[2];
  static char quarter[kQuarter];
  memset(quarter, round + 1, sizeof quarter);
  if (pipe(pipes) != 0 || write(pipes[1], quarter, kQuarter) != kQuarter ||
      read(pipes[0], buffer, kQuarter) != kQuarter)
    ++failures;
  close(pipes[0]);
  close(pipes[1]);
}

static void send_round(char* const* buffers, MPI_Request* requests, int round) {
  MPI_Start(&requests[1]);
#pragma omp parallel num_threads(kThreads)
  {
    int thread = omp_get_thread_num();
    if (thread == 0) fill_by_read(buffers[kShared], round);
    if (thread != 0) fill(buffers[kShared], thread, round);
    fill(computed, thread, round);
    fill(buffers[kPersistent], thread, round);
    fill(buffers[kPartitioned], thread, round);
    MPI_Pready(thread, requests[1]);
  }
  memcpy(buffers[kPacked], computed, kBytes);
  MPI_Request isend;
  MPI_Isend(buffers[kShared], kBytes, MPI_CHAR, 1, kShared, MPI_COMM_WORLD, &isend);
  MPI_Send(buffers[kPacked], kBytes, MPI_CHAR, 1, kPacked, MPI_COMM_WORLD);
  MPI_Start(&requests[0]);
  MPI_Wait(&isend, MPI_STATUS_IGNORE);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void receive_round(char* const* buffers, MPI_Request* requests, int round) {
  MPI_Start(&requests[1]);
  for (int i = 0; i < kPartitioned; ++i)
    MPI_Recv(buffers[i], kBytes, MPI_CHAR, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
  for (int thread = 0; thread < kThreads; ++thread) fill(computed, thread, round);
  for (int i = 0; i < kBuffers; ++i) failures += memcmp(buffers[i], computed, kBytes) != 0;
}

int main(int argc, char** argv) {
  int rank, provided;
  char* buffers[kBuffers];
  MPI_Request requests[2] = {MPI_REQUEST_NULL};
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < kBuffers; ++i) {
    buffers[i] = memset(aligned_alloc(4096, kBytes), 0, kBytes);
    if (rank == 0) printf("%s %p\n", kNames[i], (void*)buffers[i]);
  }
  if (rank == 0) {
#pragma omp parallel num_threads(kThreads)
    MPI_Send(NULL, 0, MPI_CHAR, MPI_PROC_NULL, 100 + omp_get_thread_num(), MPI_COMM_WORLD);
    MPI_Send_init(buffers[kPersistent], kBytes, MPI_CHAR, 1, kPersistent, MPI_COMM_WORLD,
                  &requests[0]);
    MPI_Psend_init(buffers[kPartitioned], kThreads, kQuarter, MPI_CHAR, 1, kPartitioned,
                   MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
  } else {
    MPI_Precv_init(buffers[kPartitioned], kThreads, kQuarter, MPI_CHAR, 0, kPartitioned,
                   MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
  }
  for (int round = 0; round < kRounds; ++round)
    (rank == 0 ? send_round : receive_round)(buffers, requests, round);
  for (int i = 0; i < 2; ++i)
    if (requests[i] != MPI_REQUEST_NULL) MPI_Request_free(&requests[i]);
  for (int i = 0; i < kBuffers; ++i) free(buffers[i]);
  printf("%s\n", failures == 0 ? "ok" : "wrong");
  MPI_Finalize();
  return 0;
}
