// Shorthands for partitioned requests.
#include "case.h"

MPI_Request psend(const void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                  int tag, MPI_Comm on) {
  MPI_Request request = MPI_REQUEST_NULL;
  MUST(MPI_Psend_init(buffer, partitions, count, type, peer, tag, on, MPI_INFO_NULL, &request));
  return request;
}

MPI_Request precv(void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                  int tag, MPI_Comm on) {
  MPI_Request request = MPI_REQUEST_NULL;
  MUST(MPI_Precv_init(buffer, partitions, count, type, peer, tag, on, MPI_INFO_NULL, &request));
  return request;
}

MPI_Request int_pair(int* data, int parts, int tag) {
  return my_rank == 0 ? psend(data, parts, 1, MPI_INT, 1, tag, comm)
                      : precv(data, parts, 1, MPI_INT, 0, tag, comm);
}

MPI_Request byte_pair(void* data, size_t bytes, int sent, int received, int tag) {
  const MPI_Count count = (MPI_Count)bytes;
  return my_rank == 0 ? psend(data, sent, count / sent, MPI_BYTE, 1, tag, comm)
                      : precv(data, received, count / received, MPI_BYTE, 0, tag, comm);
}

void write_ints(int* data, int parts, int round) {
  for (int i = 0; i < parts; ++i) data[i] = 10 * round + i;
}

void expect_ints(const int* data, int parts, int round) {
  for (int i = 0; i < parts; ++i) {
    EXPECT_DATA(data[i] == 10 * round + i, "round %d, partition %d: found %d", round, i, data[i]);
  }
}

void start(MPI_Request* request) { MUST(MPI_Start(request)); }
void ready(MPI_Request request, int partition) { MUST(MPI_Pready(partition, request)); }

void ready_all(MPI_Request request, int partitions) {
  MUST(MPI_Pready_range(0, partitions - 1, request));
}

bool arrived(MPI_Request request, int partition) {
  int flag = 0;
  MUST(MPI_Parrived(request, partition, &flag));
  return flag != 0;
}

bool arrives(MPI_Request request, int partition, double seconds) {
  const double end = now_s() + seconds;
  while (!arrived(request, partition)) {
    if (now_s() > end) return false;
  }
  return true;
}

void stream_round(MPI_Request* request, void* data, size_t bytes, int sent, uint64_t stream,
                  uint64_t round) {
  if (my_rank == 0) fill(data, bytes, stream, round);
  start(request);
  if (my_rank == 0) ready_all(*request, sent);
  complete(request);
  if (my_rank == 1) EXPECT_STREAM(data, bytes, stream, round);
}
