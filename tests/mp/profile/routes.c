/* Messages of rank 0 of 6, one each: to ranks 1 and 5 in turns; by a communicator in which the
 * ranks are the other way round, and by one in which they are not, which gets its handle; of types
 * that are freed at once, so that the next one gets their handle, made with int and with MPI_Count.
 * Prints "ok". */
#include <mpi.h>
#include <stdio.h>

static int cells[8];

static void send(int peer, int world_peer, int count, MPI_Datatype type, MPI_Comm comm) {
  int self;
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  MPI_Barrier(MPI_COMM_WORLD);
  if (self == 0) MPI_Send(cells, count, type, peer, 0, comm);
  if (self == world_peer) MPI_Recv(cells, 8, MPI_INT, MPI_ANY_SOURCE, 0, comm, MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int self, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 4; ++i) {
    const int peer = i % 2 == 0 ? 1 : 5;
    send(peer, peer, 1, MPI_INT, MPI_COMM_WORLD);
  }
  for (int turn = 0; turn < 2; ++turn) {
    MPI_Comm other;
    MPI_Comm_split(MPI_COMM_WORLD, 0, turn == 0 ? size - self : self, &other);
    for (int peer = turn; peer < 2; ++peer)
      send(peer, turn == 0 ? size - 1 - peer : peer, 2, MPI_INT, other);
    MPI_Comm_free(&other);
  }
#if MPI_VERSION >= 4
  MPI_Datatype large;
  MPI_Type_contiguous_c(6, MPI_INT, &large);
  MPI_Type_commit(&large);
  send(1, 1, 1, large, MPI_COMM_WORLD);
  MPI_Type_free(&large);
#endif
  for (int cell = 3; cell <= 5; ++cell) {
    MPI_Datatype type;
    MPI_Type_contiguous(cell, MPI_INT, &type);
    MPI_Type_commit(&type);
    send(1, 1, 1, type, MPI_COMM_WORLD);
    MPI_Type_free(&type);
  }
  if (self == 0) printf("ok\n");
  MPI_Finalize();
  return 0;
}
