// Shorthands for ordinary messages.
#include "messages.h"

#include <stdlib.h>
#include <string.h>

#include "../harness.h"

int child_main(const char* what) {  // no case of this suite spawns
  (void)what;
  return 2;
}

void spoil(MPI_Status* status) { memset(status, 0x55, sizeof(*status)); }

void expect_status(const MPI_Status* status, int source, int tag, long long bytes, const char* file,
                   int line) {
  int count = -1, cancelled = -1;
  MUST(MPI_Get_count(status, MPI_BYTE, &count));
  MUST(MPI_Test_cancelled(status, &cancelled));
  if (status->MPI_SOURCE == source && status->MPI_TAG == tag && count == bytes && !cancelled) {
    return;
  }
  case_fail("error", file, line,
            "status: source %d, tag %d, %d bytes, cancelled %d; expected %d, %d, %lld, 0",
            status->MPI_SOURCE, status->MPI_TAG, count, cancelled, source, tag, bytes);
}

void expect_empty(const MPI_Status* status, const char* file, int line) {
  expect_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0, file, line);
}

int class_of(int code) {
  int class = MPI_SUCCESS;
  MPI_Error_class(code, &class);
  return class;
}

bool completes(MPI_Request* request, MPI_Status* status, double seconds) {
  const double end = now_s() + seconds;
  int flag = 0;
  do {
    MUST(MPI_Test(request, &flag, status));
  } while (!flag && now_s() < end);
  return flag != 0;
}

bool stays_open(MPI_Request* request, double seconds) {
  return !completes(request, MPI_STATUS_IGNORE, seconds);
}

void send_int(int value, int to, int tag) { MUST(MPI_Send(&value, 1, MPI_INT, to, tag, comm)); }

int recv_int(int from, int tag, MPI_Status* status) {
  int value = -1;
  MUST(MPI_Recv(&value, 1, MPI_INT, from, tag, comm, status));
  return value;
}

MPI_Request isend(const void* data, int bytes, int to, int tag) {
  MPI_Request request;
  MUST(MPI_Isend(data, bytes, MPI_BYTE, to, tag, comm, &request));
  return request;
}

MPI_Request issend(const void* data, int bytes, int to, int tag) {
  MPI_Request request;
  MUST(MPI_Issend(data, bytes, MPI_BYTE, to, tag, comm, &request));
  return request;
}

MPI_Request irecv(void* data, int bytes, int from, int tag) {
  MPI_Request request;
  MUST(MPI_Irecv(data, bytes, MPI_BYTE, from, tag, comm, &request));
  return request;
}

MPI_Request isend_int(const int* value, int to, int tag) {
  MPI_Request request;
  MUST(MPI_Isend(value, 1, MPI_INT, to, tag, comm, &request));
  return request;
}

MPI_Request irecv_int(int* value, int from, int tag) {
  MPI_Request request;
  MUST(MPI_Irecv(value, 1, MPI_INT, from, tag, comm, &request));
  return request;
}

void meet(void) { MUST(MPI_Barrier(world)); }

void* memory(size_t bytes) {
  void* all = malloc(bytes > 0 ? bytes : 1);
  REQUIRE(all != NULL, "no memory for %zu bytes", bytes);
  return all;
}

int largest_tag(void) {
  int found = 0, *bound = NULL;
  MUST(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found));
  return found ? *bound : 32767;
}
