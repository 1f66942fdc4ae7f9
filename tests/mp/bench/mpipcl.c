/* A double of MPIPCL: its calls over persistent messages, one a partition. Variable MPIPCL_DOUBLE
 * "lost": the last partition travels without its last byte.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  MPI_Request* partitions;
  int count, is_send;
} request;

static int init(int is_send, char* buffer, int partitions, MPI_Count count, MPI_Datatype type,
                int peer, int tag, MPI_Comm comm, request* r) {
  const char* fault = getenv("MPIPCL_DOUBLE");
  int size;
  MPI_Type_size(type, &size);
  *r = (request){malloc((size_t)partitions * sizeof(MPI_Request)), partitions, is_send};
  for (int p = 0; p < partitions; ++p) {
    int bytes = (int)count * size;
    char* at = buffer + (size_t)p * (size_t)bytes;
    if (fault && strcmp(fault, "lost") == 0 && p == partitions - 1) --bytes;
    if (is_send)
      MPI_Send_init(at, bytes, MPI_BYTE, peer, tag * 16 + p, comm, &r->partitions[p]);
    else
      MPI_Recv_init(at, bytes, MPI_BYTE, peer, tag * 16 + p, comm, &r->partitions[p]);
  }
  return MPI_SUCCESS;
}

int MPIP_Psend_init(void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                    int tag, MPI_Comm comm, MPI_Info info, request* r) {
  (void)info;
  return init(1, buffer, partitions, count, type, peer, tag, comm, r);
}
int MPIP_Precv_init(void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                    int tag, MPI_Comm comm, MPI_Info info, request* r) {
  (void)info;
  return init(0, buffer, partitions, count, type, peer, tag, comm, r);
}
int MPIP_Start(request* r) {
  return r->is_send ? MPI_SUCCESS : MPI_Startall(r->count, r->partitions);
}
int MPIP_Pready(int partition, request* r) { return MPI_Start(&r->partitions[partition]); }
int MPIP_Parrived(request* r, int partition, int* flag) {
  return MPI_Test(&r->partitions[partition], flag, MPI_STATUS_IGNORE);
}
int MPIP_Test(request* r, int* flag, MPI_Status* status) {
  (void)status;
  return MPI_Testall(r->count, r->partitions, flag, MPI_STATUSES_IGNORE);
}
int MPIP_Wait(request* r, MPI_Status* status) {
  (void)status;
  return MPI_Waitall(r->count, r->partitions, MPI_STATUSES_IGNORE);
}
int MPIP_Request_free(request* r) {
  for (int p = 0; p < r->count; ++p) MPI_Request_free(&r->partitions[p]);
  free(r->partitions);
  return MPI_SUCCESS;
}
