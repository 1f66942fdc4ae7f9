#pragma once
// Shared by the programs of carried_test.py: checks, and messages of known bytes.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int my_rank = -1, rank_count;

/// Ends the job after a failed check.
static void expect(int is_so, const char* what, long value) {
  if (is_so) return;
  printf("rank %d failed: %s: %ld\n", my_rank, what, value);
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static inline void start(int* argc, char*** argv) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
}

static inline void* memory(size_t bytes) {
  void* const made = malloc(bytes == 0 ? 1 : bytes);
  expect(made != NULL, "no memory", (long)bytes);
  return made;
}

static inline void fill(unsigned char* data, int bytes, unsigned seed) {
  for (int i = 0; i < bytes; ++i) data[i] = (unsigned char)(seed * 31u + (unsigned)i * 7u);
}

/// The number of wrong bytes.
static inline long wrong_bytes(const unsigned char* data, int bytes, unsigned seed) {
  long wrong = 0;
  for (int i = 0; i < bytes; ++i)
    wrong += data[i] != (unsigned char)(seed * 31u + (unsigned)i * 7u);
  return wrong;
}

/// One message in each direction between two ranks.
static inline void swap_with(int peer, int bytes, int tag, unsigned seed, MPI_Comm comm) {
  unsigned char* const out = memory((size_t)bytes);
  unsigned char* const in = memory((size_t)bytes);
  MPI_Request request;
  int own;
  MPI_Comm_rank(comm, &own);
  fill(out, bytes, seed + (unsigned)own);
  MPI_Isend(out, bytes, MPI_BYTE, peer, tag, comm, &request);
  MPI_Recv(in, bytes, MPI_BYTE, peer, tag, comm, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(wrong_bytes(in, bytes, seed + (unsigned)peer) == 0, "wrong bytes of a message", bytes);
  free(out);
  free(in);
}
