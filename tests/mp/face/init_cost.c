// The cost of making and freeing partitioned requests for the caller: one process, to itself. The
// test counts instructions of the three functions below, and system calls between their marks.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kPairs = 200, kPartitions = 8, kMark = 0x4c4b };

static MPI_Request sends[kPairs], receives[kPairs];
static char from[kPairs][kPartitions], to[kPairs][kPartitions];

// A system call that nothing else makes.
static void mark(int what) { syscall(SYS_getpgid, kMark + what); }

__attribute__((noinline)) void cost_of_sends(int first, int count) {
  for (int i = first; i < first + count; ++i)
    MPI_Psend_init(from[i], kPartitions, 1, MPI_CHAR, 0, i, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &sends[i]);
}
__attribute__((noinline)) void cost_of_receives(int first, int count) {
  for (int i = first; i < first + count; ++i)
    MPI_Precv_init(to[i], kPartitions, 1, MPI_CHAR, 0, i, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &receives[i]);
}
__attribute__((noinline)) void cost_of_frees(int first, int count) {
  for (int i = first; i < first + count; ++i) {
    MPI_Request_free(&sends[i]);
    MPI_Request_free(&receives[i]);
  }
}

static void round_of_all(int count) {
  MPI_Startall(count, receives);
  MPI_Startall(count, sends);
  for (int i = 0; i < count; ++i) {
    for (int p = 0; p < kPartitions; ++p) from[i][p] = (char)(i + p);
    MPI_Pready_range(0, kPartitions - 1, sends[i]);
  }
  MPI_Waitall(count, sends, MPI_STATUSES_IGNORE);
  MPI_Waitall(count, receives, MPI_STATUSES_IGNORE);
  for (int i = 0; i < count; ++i) {
    for (int p = 0; p < kPartitions; ++p) {
      if (to[i][p] != from[i][p]) {
        puts("wrong bytes");
        exit(1);
      }
    }
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  // Engine, connection, pools: as many as are counted after it.
  mark(0);
  cost_of_sends(0, kPairs);
  cost_of_receives(0, kPairs);
  round_of_all(kPairs);
  cost_of_frees(0, kPairs);
  for (int cycle = 0; cycle < 2; ++cycle) {
    mark(1);
    cost_of_sends(0, kPairs);
    mark(2);
    cost_of_receives(0, kPairs);
    mark(3);
    round_of_all(kPairs);
    mark(4);
    cost_of_frees(0, kPairs);
    mark(5);
  }
  MPI_Finalize();
  puts("ok");
  return 0;
}
