// A PMPI tool of the usual kind: counts MPI_Send and MPI_Wait, reports at MPI_Finalize.

#include <mpi.h>
#include <stdio.h>

static int sends = 0, waits = 0;

int MPI_Send(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  ++sends;
  return PMPI_Send(buffer, count, type, to, tag, comm);
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  ++waits;
  return PMPI_Wait(request, status);
}

int MPI_Finalize(void) {
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("tool: rank %d sends %d waits %d\n", rank, sends, waits);
  return PMPI_Finalize();
}
