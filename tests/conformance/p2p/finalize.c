// A program of two processes: messages in MPI_Finalize, by delete callbacks of attributes of
// MPI_COMM_SELF. It prints a verdict as the suite does.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { kMessages = 20000, kBytes = 4096 };

static int rank, wrong;

static unsigned char buffered[1 << 20];

/// Rank 0 leaves a buffered message behind, and its buffer attached: MPI_Finalize detaches it.
static void leave_a_message(void) {
  enum { kSize = (int)sizeof buffered + 1000 + MPI_BSEND_OVERHEAD };
  static char space[kSize];
  if (rank != 0) return;
  memset(buffered, 9, sizeof buffered);
  MPI_Buffer_attach(space, kSize);
  MPI_Bsend(buffered, (int)sizeof buffered, MPI_BYTE, 1, 4, MPI_COMM_WORLD);
  memset(buffered, 0, sizeof buffered);
}

/// Rank 0 sends all messages before rank 1 receives the last one first.
static int talk(MPI_Comm self, int key, void* value, void* state) {
  (void)self, (void)key, (void)value, (void)state;
  static unsigned char data[kBytes], out[kMessages][kBytes];
  static MPI_Request request[kMessages];
  int last = 0;
  if (rank == 0) {
    for (int i = 0; i < kMessages; ++i) {
      memset(out[i], i % 251, kBytes);
      MPI_Isend(out[i], kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request[i]);
    }
    MPI_Send(&last, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
    MPI_Waitall(kMessages, request, MPI_STATUSES_IGNORE);
    MPI_Recv(&last, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wrong = last;
  } else if (rank == 1) {
    MPI_Recv(&last, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < kMessages; ++i) {
      MPI_Recv(data, kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int b = 0; b < kBytes; ++b) wrong += data[b] != i % 251;
    }
    MPI_Recv(buffered, (int)sizeof buffered, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (size_t b = 0; b < sizeof buffered; ++b) wrong += buffered[b] != 9;
    MPI_Send(&wrong, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
  }
  return MPI_SUCCESS;
}

int main(int argc, char** argv) {
  int key;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, talk, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
  leave_a_message();
  MPI_Finalize();
  if (rank == 0 && wrong == 0) puts("ok PX8_messages_in_finalize");
  if (rank == 0 && wrong != 0) {
    printf("not ok PX8_messages_in_finalize: rank 1: wrong data: %d bytes are wrong\n", wrong);
  }
  return wrong != 0;
}
