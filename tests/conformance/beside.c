// Beside live channels: MPI-IO, windows, collectives, a forked child, other threads' signals.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "case.h"

enum { kTag = 71, kParts = 4, kBytes = 4096 };

typedef struct Live {
  unsigned char data[kBytes];
  MPI_Request request;
} Live;

static void live_open(Live* l) {
  l->request = my_rank == 0 ? psend(l->data, kParts, kBytes / kParts, MPI_BYTE, 1, kTag, comm)
                            : precv(l->data, kParts, kBytes / kParts, MPI_BYTE, 0, kTag, comm);
}

/// Half a round, `between`, the other half.
static void live_round(Live* l, uint64_t round, void (*between)(void)) {
  if (my_rank == 0) fill(l->data, kBytes, 1, round);
  start(&l->request);
  if (my_rank == 0) MUST(MPI_Pready_range(0, 1, l->request));
  between();
  if (my_rank == 0) MUST(MPI_Pready_range(2, 3, l->request));
  complete(&l->request);
  if (my_rank == 1) EXPECT_STREAM(l->data, kBytes, 1, round);
}

static void beside(void (*what)(void)) {
  Live live;
  live_open(&live);
  for (uint64_t round = 1; round <= 3; ++round) live_round(&live, round, what);
  drop(&live.request);
}

static void file_io(void) {
  char name[64] = "/tmp/conformance-io-XXXXXX";
  if (my_rank == 0) {
    const int fd = mkstemp(name);
    REQUIRE(fd >= 0, "mkstemp failed");
    close(fd);
  }
  MUST(MPI_Bcast(name, (int)sizeof(name), MPI_CHAR, 0, comm));
  MPI_File file;
  MUST(MPI_File_open(comm, name, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
  int value[64], back[64] = {0};
  for (int i = 0; i < 64; ++i) value[i] = 100 * my_rank + i;
  const MPI_Offset at = (MPI_Offset)(my_rank * (int)sizeof(value));
  MPI_Request request;
  MUST(MPI_File_iwrite_at(file, at, value, 64, MPI_INT, &request));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  MUST(MPI_File_write_at_all(file, at, value, 64, MPI_INT, MPI_STATUS_IGNORE));
  MUST(MPI_File_sync(file));
  MUST(MPI_Barrier(comm));
  MUST(MPI_File_read_at_all(file, at, back, 64, MPI_INT, MPI_STATUS_IGNORE));
  EXPECT_DATA(memcmp(value, back, sizeof(value)) == 0, "the file has other data");
  MUST(MPI_File_close(&file));
}

static void windows(void) {
  int* memory = NULL;
  MPI_Win win;
  MUST(MPI_Win_allocate(64 * sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &memory, &win));
  for (int i = 0; i < 64; ++i) memory[i] = 0;
  int value = 7 + my_rank;
  MUST(MPI_Win_fence(0, win));
  MUST(MPI_Put(&value, 1, MPI_INT, my_peer, 5, 1, MPI_INT, win));
  MUST(MPI_Win_fence(0, win));
  EXPECT_DATA(memory[5] == 7 + my_peer, "expected %d, found %d", 7 + my_peer, memory[5]);
  MUST(MPI_Win_free(&win));
}

static void collectives(void) {
  int sum = 0, one = 1, all[2];
  MPI_Request request;
  MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
  MUST(MPI_Iallgather(&my_rank, 1, MPI_INT, all, 1, MPI_INT, comm, &request));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  EXPECT_DATA(sum == 2 && all[1] == 1, "sum %d, all[1] %d", sum, all[1]);
}

static void memory_of_mpi(void) {
  unsigned char* data = NULL;
  MUST(MPI_Alloc_mem(kBytes, MPI_INFO_NULL, &data));
  MPI_Request request = byte_pair(data, kBytes, 2, 2, kTag + 1);
  for (uint64_t round = 1; round <= 3; ++round) stream_round(&request, data, kBytes, 2, 9, round);
  drop(&request);
  MUST(MPI_Free_mem(data));
}

/// A child that calls nothing of MPI and lives on while the channel is used.
static void forked_child(void) {
  const pid_t child = fork();
  REQUIRE(child >= 0, "fork failed");
  if (child == 0) {
    pause_s(0.02);
    _exit(0);
  }
  Live other;
  live_open(&other);
  if (my_rank == 0) fill(other.data, kBytes, 4, 1);
  start(&other.request);
  if (my_rank == 0) ready_all(other.request, kParts);
  complete(&other.request);
  if (my_rank == 1) EXPECT_STREAM(other.data, kBytes, 4, 1);
  drop(&other.request);
  int state = -1;
  while (waitpid(child, &state, 0) != child) {
  }
  EXPECT(state == 0, "the child ended with %d", state);
}

/// A channel with a process that changes while a child holds copies of its descriptors.
static void replaced_child(void) {
  const pid_t child = fork();
  REQUIRE(child >= 0, "fork failed");
  if (child == 0) {
    execlp("true", "true", (char*)NULL);
    _exit(127);
  }
  int state = -1;
  while (waitpid(child, &state, 0) != child) {
  }
  EXPECT(state == 0, "the child ended with %d", state);
}

CASE(X1_beside_files, .ranks = 2) { beside(file_io); }
CASE(X1_beside_windows, .ranks = 2) { beside(windows); }
CASE(X1_beside_collectives, .ranks = 2) { beside(collectives); }
CASE(X1_buffers_of_alloc_mem, .ranks = 2) { beside(memory_of_mpi); }
CASE(X1_beside_a_forked_child, .ranks = 2) { beside(forked_child); }
CASE(X1_beside_an_executed_child, .ranks = 2) { beside(replaced_child); }
