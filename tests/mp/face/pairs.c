// pairs ring|incast|memory: many ranks. ring: each sends to the next. incast: all send to rank 0.
// memory: each talks with 1, then 8, then 32 peers: "peers K: B bytes" of all ranks in all. Prints
// "ok" at rank 0, and the seconds of MPI_Init.

#include <sys/stat.h>

#include "carried.h"

enum { kTag = 8, kMessages = 20 };

/// The memory of all processes, in bytes, at rank 0: private pages, and all pages of files in
/// memory that the process has made for its peers, mapped or not.
struct memory {
  double private, shared;
};
static struct memory memory_of_all(void) {
  char line[256], path[64];
  double own[2] = {0, 0}, all[2] = {0, 0};
  FILE* const file = fopen("/proc/self/smaps_rollup", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, "Pss_Anon:", 9) == 0) own[0] = atof(line + 9) * 1024;
  if (file != NULL) fclose(file);
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat info;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(path, line, sizeof line - 1);
    if (length < 0) continue;
    line[length] = '\0';
    if (strncmp(line, "/memfd:larklane", 15) == 0 && fstat(fd, &info) == 0)
      own[1] += (double)info.st_blocks * 512;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Reduce(own, all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  return (struct memory){all[0], all[1]};
}

static void talk_with_next(int distance) {
  const int to = (my_rank + distance) % rank_count;
  const int from = (my_rank + rank_count - distance) % rank_count;
  for (int i = 0; i < kMessages; ++i) {
    int sent[2] = {my_rank, i}, got[2] = {-1, -1};
    MPI_Sendrecv(sent, 2, MPI_INT, to, kTag, got, 2, MPI_INT, from, kTag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    expect(got[0] == from && got[1] == i, "another message", got[0]);
  }
}

static void incast(void) {
  long sum = 0;
  if (my_rank != 0) {
    for (int i = 0; i < kMessages; ++i) MPI_Send(&i, 1, MPI_INT, 0, kTag, MPI_COMM_WORLD);
    return;
  }
  int* const next = calloc((size_t)rank_count, sizeof *next);
  for (int i = 0; i < kMessages * (rank_count - 1); ++i) {
    int got = -1;
    MPI_Status status;
    MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &status);
    expect(got == next[status.MPI_SOURCE]++, "out of order", status.MPI_SOURCE);
    sum += got;
  }
  expect(sum == (long)(rank_count - 1) * kMessages * (kMessages - 1) / 2, "the sum", sum);
  free(next);
}

static void memory_by_peers(void) {
  static const int kPeers[] = {0, 1, 8, 32};
  int distance = 0;
  for (int step = 0; step < 4; ++step) {
    while (distance < kPeers[step]) talk_with_next(++distance);
    const struct memory all = memory_of_all();
    if (my_rank == 0)
      printf("peers %d: %.0f private, %.0f shared\n", kPeers[step], all.private, all.shared);
  }
}

int main(int argc, char** argv) {
  const char* const what = argv[1];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  if (strstr(what, "ring") != NULL) talk_with_next(1);
  if (strstr(what, "incast") != NULL) incast();
  if (strstr(what, "memory") != NULL) memory_by_peers();
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  if (my_rank == 0) printf("ok\n");
  return 0;
}
