// forbidden [RANK]: two ranks exchange long messages although no process may read another's memory:
// rank RANK is not dumpable, and neither has CAP_SYS_PTRACE. Without a word: a filter of system
// calls has done the same. Prints "rank N ok".

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "carried.h"

enum { kLong = 5 << 20, kTag = 6 };

static void forbid(int is_dumpable) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  if (syscall(SYS_capget, &header, data) == 0) {
    data[0].effective &= ~(1u << CAP_SYS_PTRACE);
    data[0].permitted &= ~(1u << CAP_SYS_PTRACE);
    syscall(SYS_capset, &header, data);
  }
  prctl(PR_SET_DUMPABLE, is_dumpable);
}

/// A strided message to a block, and back.
static void strided(void) {
  enum { kBlocks = 40000 };
  static int scattered[2 * kBlocks], whole[kBlocks];
  MPI_Datatype column;
  MPI_Type_vector(kBlocks, 1, 2, MPI_INT, &column);
  MPI_Type_commit(&column);
  for (int i = 0; i < kBlocks; ++i) scattered[2 * i] = i + my_rank;
  MPI_Sendrecv(scattered, 1, column, 1 - my_rank, kTag, whole, kBlocks, MPI_INT, 1 - my_rank, kTag,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  long wrong = 0;
  for (int i = 0; i < kBlocks; ++i) wrong += whole[i] != i + 1 - my_rank;
  expect(wrong == 0, "wrong integers of a strided message", wrong);
  MPI_Type_free(&column);
}

/// The receiver takes the offers while the sender is in its own computation, then in a barrier.
static void unattended(void) {
  static unsigned char data[kLong];
  MPI_Request request;
  if (my_rank == 0) fill(data, kLong, 5);
  if (my_rank == 0) MPI_Isend(data, kLong, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &request);
  if (my_rank == 0) usleep(100000);
  if (my_rank == 1) MPI_Recv(data, kLong, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  if (my_rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (my_rank == 1) expect(wrong_bytes(data, kLong, 5) == 0, "wrong bytes of a late sender", 0);
}

int main(int argc, char** argv) {
  const char* own = getenv("PMI_RANK");
  if (own == NULL) own = getenv("OMPI_COMM_WORLD_RANK");
  if (argc > 1) forbid(own == NULL || atoi(own) != atoi(argv[1]));
  start(&argc, &argv);
  static const int kBytes[] = {1, 8168, 8169, 16385, 70000, 262145, kLong};
  for (int i = 0; i < 7; ++i)
    for (unsigned again = 0; again < 3; ++again)
      swap_with(1 - my_rank, kBytes[i], kTag, again, MPI_COMM_WORLD);
  strided();
  unattended();
  MPI_Finalize();
  printf("rank %d ok\n", my_rank);
  return 0;
}
