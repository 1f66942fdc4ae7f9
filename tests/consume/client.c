/* A foreign program: C11, pedantic, our header, one partitioned round to itself. */
#include <larklane/mpi_partitioned.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  int in[4] = {0}, out[4] = {1, 2, 3, 4}, wrong = 0;
  MPI_Request requests[2];
  MPI_Init(&argc, &argv);
  MPI_Psend_init(out, 4, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_INFO_NULL, &requests[0]);
  MPI_Precv_init(in, 2, 2, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_INFO_NULL, &requests[1]);
  MPI_Startall(2, requests);
  MPI_Pready_range(0, 3, requests[0]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < 4; ++i) wrong += in[i] != out[i];
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
  MPI_Finalize();
  printf("%d wrong\n", wrong);
  return wrong != 0;
}
