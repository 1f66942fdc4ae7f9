/* Makes a request and frees it. */
#include <mpi.h>

int main(int argc, char** argv) {
  int provided, self, cell = 0;
  MPI_Request request;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  MPI_Send_init(&cell, 1, MPI_INT, self, 0, MPI_COMM_WORLD, &request);
  MPI_Request_free(&request);
  MPI_Finalize();
  return 0;
}
