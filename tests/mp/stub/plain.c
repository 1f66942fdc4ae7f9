// A program that never calls a partitioned function: a ring with every kind of completion call,
// some communicators, memory. Prints `rank R of N ok`, then the libraries of ours that are loaded
// and the names of its threads. With an argument: so many more rounds.

#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRoundsAlways = 10 };

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  printf("failed: %s\n", what);
  ++failures;
}

static void round_of(MPI_Comm comm, int round) {
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int from = (rank + size - 1) % size, to = (rank + 1) % size;
  int got = -1, sent = rank + round;
  MPI_Request requests[2];
  MPI_Status statuses[2];
  MPI_Irecv(&got, 1, MPI_INT, from, round, comm, &requests[0]);
  MPI_Isend(&sent, 1, MPI_INT, to, round, comm, &requests[1]);
  if (round % 3 == 0) {
    MPI_Waitall(2, requests, statuses);
    expect(statuses[0].MPI_SOURCE == from && statuses[0].MPI_TAG == round, "status of Waitall");
  } else if (round % 3 == 1) {
    int index, flag = 0;
    for (int done = 0; done < 2; done += flag) {
      MPI_Testany(2, requests, &index, &flag, MPI_STATUS_IGNORE);
    }
  } else {
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[1], &statuses[1]);
  }
  expect(got == from + round, "payload");
  expect(requests[0] == MPI_REQUEST_NULL, "request after completion");
}

static void persistent_round(MPI_Comm comm) {
  int got = -1, sent = 42, flag = 0;
  MPI_Request requests[2];
  MPI_Recv_init(&got, 1, MPI_INT, 0, 0, comm, &requests[0]);
  MPI_Send_init(&sent, 1, MPI_INT, 0, 0, comm, &requests[1]);
  MPI_Startall(2, requests);
  while (!flag) MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
  expect(got == 42, "persistent payload");
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
}

static void print_threads(void) {
  DIR* folder = opendir("/proc/self/task");
  for (struct dirent* entry; folder && (entry = readdir(folder));) {
    char path[300], name[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE* file = fopen(path, "r");
    if (file && fgets(name, sizeof name, file)) printf("thread %s", name);
    if (file) fclose(file);
  }
  if (folder) closedir(folder);
}

static void print_libraries(void) {
  char line[4096];
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) {
    const char* name = strstr(line, "liblarklane_");
    if (name && strstr(line, "r-xp")) printf("library %s", name);
  }
  if (maps) fclose(maps);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm dup, half, self;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup);
  MPI_Comm_split(dup, rank % 2, rank, &half);
  MPI_Comm_dup(MPI_COMM_SELF, &self);
  const int rounds = kRoundsAlways + (argc > 1 ? atoi(argv[1]) : 0);
  for (int round = 0; round < rounds; ++round) round_of(dup, round);
  persistent_round(self);
  int* memory = NULL;
  MPI_Alloc_mem(64, MPI_INFO_NULL, &memory);
  memory[0] = rank;
  if (rank > 0) MPI_Send(memory, 1, MPI_INT, 0, 0, dup);
  for (int i = 1; rank == 0 && i < size; ++i)
    MPI_Recv(memory, 1, MPI_INT, i, 0, dup, MPI_STATUS_IGNORE);
  MPI_Free_mem(memory);
  MPI_Comm_free(&self);
  MPI_Comm_free(&half);
  MPI_Comm_free(&dup);
  printf("rank %d of %d %s\n", rank, size, failures ? "FAILED" : "ok");
  print_libraries();
  print_threads();
  MPI_Finalize();
  return failures != 0;
}
