// An MPI whose partitioned communication is one message, sent with the last MPI_Pready. HASTY names
// the defect of this MPI:
//   payload  is taken by MPI_Start
//   send     completes before all partitions were ready
//   receive  likewise
//   arrival  of the partition in the middle is reported from the start on
//   put      of bytes: nothing comes
//   inside   of a message of MPI_Isend: a byte between its ends is another
//   made     a send never is
//   end      MPI_Finalize never returns
// Preloaded before a real MPI.

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kRequestsMax = 256 };

struct Message {
  MPI_Request request;  // persistent; stands for the partitioned one
  char *buffer, *copy;  // copy: the bytes to send; receives have none
  size_t bytes;         // of a partition
  int partitions, ready;
  int is_used;
};
static struct Message messages[kRequestsMax];

static int is(const char* fault) {
  const char* const wanted = getenv("HASTY");
  return wanted != NULL && strcmp(wanted, fault) == 0;
}

static struct Message* find(MPI_Request request) {
  for (struct Message* m = messages; m < messages + kRequestsMax; ++m)
    if (m->is_used && m->request == request) return m;
  return NULL;
}

static struct Message* make(const void* buffer, int partitions, MPI_Count bytes) {
  struct Message* m = messages;
  while (m->is_used) ++m;
  *m = (struct Message){
      .buffer = (char*)buffer, .bytes = (size_t)bytes, .partitions = partitions, .is_used = 1};
  return m;
}

int MPI_Finalize(void) {
  while (is("end")) pause();
  return PMPI_Finalize();
}

int MPI_Psend_init(const void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                   int tag, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  (void)info;
  while (is("made")) pause();
  struct Message* m = make(buffer, partitions, count);
  m->copy = malloc(m->bytes * (size_t)partitions);
  PMPI_Send_init(m->copy, (int)count * partitions, type, peer, tag, comm, &m->request);
  *request = m->request;
  return MPI_SUCCESS;
}

int MPI_Precv_init(void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                   int tag, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  (void)info;
  struct Message* m = make(buffer, partitions, count);
  PMPI_Recv_init(buffer, (int)count * partitions, type, peer, tag, comm, &m->request);
  *request = m->request;
  return MPI_SUCCESS;
}

int MPI_Start(MPI_Request* request) {
  struct Message* m = find(*request);
  if (m == NULL || m->copy == NULL) return PMPI_Start(request);
  m->ready = 0;
  if (is("payload")) memcpy(m->copy, m->buffer, m->bytes * (size_t)m->partitions);
  return MPI_SUCCESS;
}

int MPI_Startall(int count, MPI_Request requests[]) {
  for (int i = 0; i < count; ++i) MPI_Start(&requests[i]);
  return MPI_SUCCESS;
}

int MPI_Pready(int partition, MPI_Request request) {
  struct Message* m = find(request);
  const size_t at = (size_t)partition * m->bytes;
  if (!is("payload")) memcpy(m->copy + at, m->buffer + at, m->bytes);
  // acq_rel: the last thread sends the copies of the others.
  if (__atomic_add_fetch(&m->ready, 1, __ATOMIC_ACQ_REL) == m->partitions) PMPI_Start(&m->request);
  return MPI_SUCCESS;
}

int MPI_Pready_range(int first, int last, MPI_Request request) {
  for (int partition = first; partition <= last; ++partition) MPI_Pready(partition, request);
  return MPI_SUCCESS;
}

int MPI_Parrived(MPI_Request request, int partition, int* flag) {
  const struct Message* m = find(request);
  PMPI_Request_get_status(request, flag, MPI_STATUS_IGNORE);
  if (is("arrival") && partition == m->partitions / 2) *flag = 1;
  return MPI_SUCCESS;
}

int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (is("inside") && count > 24) ((char*)buffer)[count / 2] = 0x5a;
  return PMPI_Isend(buffer, count, type, peer, tag, comm, request);
}

int MPI_Put(const void* from, int count, MPI_Datatype type, int peer, MPI_Aint at, int there_count,
            MPI_Datatype there, MPI_Win window) {
  if (is("put")) return MPI_SUCCESS;
  return PMPI_Put(from, count, type, peer, at, there_count, there, window);
}

int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  const struct Message* m = find(request);
  PMPI_Request_get_status(request, flag, status);
  if (m == NULL) return MPI_SUCCESS;
  // relaxed: only whether it is the last one's turn still to come
  const int ready = __atomic_load_n(&m->ready, __ATOMIC_RELAXED);
  if (m->copy != NULL && ready < m->partitions) *flag = is("send");
  if (m->copy == NULL && is("receive")) *flag = 1;
  return MPI_SUCCESS;
}

int MPI_Request_free(MPI_Request* request) {
  struct Message* m = find(*request);
  if (m != NULL) {
    free(m->copy);
    m->is_used = 0;
  }
  return PMPI_Request_free(request);
}
