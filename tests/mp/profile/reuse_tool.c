/* A PMPI tool: when a request has been freed, and MPI_Request_free has not returned yet, another
 * thread makes one, which gets the same handle, and uses it for a message to itself. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

static void* use_again(void* freed) {
  MPI_Request request;
  int self, sent = 0, received;
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  MPI_Send_init(&sent, 1, MPI_INT, self, 0, MPI_COMM_WORLD, &request);
  printf("reused %s\n", request == *(MPI_Request*)freed ? "yes" : "no");
  MPI_Start(&request);
  MPI_Recv(&received, 1, MPI_INT, self, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  return NULL;
}

int MPI_Request_free(MPI_Request* request) {
  MPI_Request freed = *request;
  int code = PMPI_Request_free(request);
  pthread_t thread;
  pthread_create(&thread, NULL, use_again, &freed);
  pthread_join(thread, NULL);
  return code;
}
