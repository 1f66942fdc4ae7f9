/* Calls that fail, and go on: requests that are counted below zero, a free of a request in use.
 * Prints "ok". */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  static char buffer[64];
  int provided, self, codes = 0;
  MPI_Request requests[2];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Precv_init(buffer, 2, 16, MPI_BYTE, self, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
  MPI_Psend_init(buffer + 32, 2, 16, MPI_BYTE, self, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                 &requests[1]);
  codes += MPI_Waitall(-1, requests, MPI_STATUSES_IGNORE) != MPI_SUCCESS;
  MPI_Startall(2, requests);
  codes += MPI_Request_free(&requests[1]) != MPI_SUCCESS;
  MPI_Pready_range(0, 1, requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  MPI_Request_free(&requests[1]);
  MPI_Request_free(&requests[0]);
  printf("%s\n", codes == 2 ? "ok" : "a mistake was not seen");
  MPI_Finalize();
  return 0;
}
