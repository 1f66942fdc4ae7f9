// The fields of a status (C6: the chapter leaves it open; here: as of a plain receive of the
// whole).
#include <string.h>

#include "case.h"

enum { kTag = 31, kPartitions = 4, kCount = 6 };

static void expect_receive(const MPI_Status* status, int source, int elements) {
  int count = -1, cancelled = -1;
  MPI_Count big = -1;
  MUST(MPI_Get_count(status, MPI_DOUBLE, &count));
  MUST(MPI_Get_elements_x(status, MPI_DOUBLE, &big));
  MUST(MPI_Test_cancelled(status, &cancelled));
  EXPECT(status->MPI_SOURCE == source && status->MPI_TAG == kTag,
         "source %d, tag %d; expected %d and %d", status->MPI_SOURCE, status->MPI_TAG, source,
         kTag);
  EXPECT(count == elements && big == elements, "count %d, elements %lld; expected %d", count,
         (long long)big, elements);
  EXPECT(!cancelled, "cancelled");
}

typedef void (*Finish)(MPI_Request*, MPI_Status*);

static void by_wait(MPI_Request* request, MPI_Status* status) { MUST(MPI_Wait(request, status)); }
static void by_test(MPI_Request* request, MPI_Status* status) {
  int flag = 0;
  while (!flag) MUST(MPI_Test(request, &flag, status));
}
static void by_waitall(MPI_Request* request, MPI_Status* status) {
  MUST(MPI_Waitall(1, request, status));
}
static void by_testall(MPI_Request* request, MPI_Status* status) {
  int flag = 0;
  while (!flag) MUST(MPI_Testall(1, request, &flag, status));
}
static void by_waitany(MPI_Request* request, MPI_Status* status) {
  int index = -1;
  MUST(MPI_Waitany(1, request, &index, status));
  EXPECT(index == 0, "index %d", index);
}
static void by_testany(MPI_Request* request, MPI_Status* status) {
  int flag = 0, index = -1;
  while (!flag) MUST(MPI_Testany(1, request, &index, &flag, status));
  EXPECT(index == 0, "index %d", index);
}
static void by_waitsome(MPI_Request* request, MPI_Status* status) {
  int done = -1, index = -1;
  MUST(MPI_Waitsome(1, request, &done, &index, status));
  EXPECT(done == 1 && index == 0, "outcount %d, index %d", done, index);
}
static void by_testsome(MPI_Request* request, MPI_Status* status) {
  int done = 0, index = -1;
  while (done == 0) MUST(MPI_Testsome(1, request, &done, &index, status));
  EXPECT(done == 1 && index == 0, "outcount %d, index %d", done, index);
}

CASE(C6_receive_status_of_every_call, .ranks = 2) {
  static const Finish kWays[] = {by_wait,    by_test,    by_waitall,  by_testall,
                                 by_waitany, by_testany, by_waitsome, by_testsome};
  double data[kPartitions * kCount] = {0};
  MPI_Request request = my_rank == 0 ? psend(data, kPartitions, kCount, MPI_DOUBLE, 1, kTag, comm)
                                     : precv(data, kPartitions, kCount, MPI_DOUBLE, 0, kTag, comm);
  for (size_t way = 0; way < sizeof(kWays) / sizeof(kWays[0]); ++way) {
    start(&request);
    if (my_rank == 0) ready_all(request, kPartitions);
    MPI_Status status;
    memset(&status, 0x55, sizeof(status));
    kWays[way](&request, &status);
    if (my_rank == 1) expect_receive(&status, 0, kPartitions * kCount);
  }
  drop(&request);
}

CASE(C6_status_of_a_send_is_usable, .ranks = 2) {
  double data[kPartitions * kCount] = {0};
  MPI_Request request = my_rank == 0 ? psend(data, kPartitions, kCount, MPI_DOUBLE, 1, kTag, comm)
                                     : precv(data, kPartitions, kCount, MPI_DOUBLE, 0, kTag, comm);
  start(&request);
  if (my_rank == 0) ready_all(request, kPartitions);
  MPI_Status status;
  int cancelled = -1;
  MUST(MPI_Waitall(1, &request, &status));
  MUST(MPI_Test_cancelled(&status, &cancelled));
  EXPECT(!cancelled, "cancelled");
  drop(&request);
}

CASE(C6_statuses_in_a_mixed_array, .ranks = 2) {
  enum { kRequests = 5 };
  double data[kPartitions * kCount] = {0};
  int plain[2] = {1, 0};
  MPI_Request request[kRequests] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL,
                                    MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Status status[kRequests];
  request[1] = my_rank == 0 ? psend(data, kPartitions, kCount, MPI_DOUBLE, 1, kTag, comm)
                            : precv(data, kPartitions, kCount, MPI_DOUBLE, 0, kTag, comm);
  request[4] = precv(data, 1, 1, MPI_DOUBLE, my_peer, 99, comm);  // never started
  MUST(MPI_Irecv(&plain[1], 1, MPI_INT, my_peer, 5, comm, &request[3]));
  MUST(MPI_Isend(&plain[0], 1, MPI_INT, my_peer, 5, comm, &request[2]));
  start(&request[1]);
  if (my_rank == 0) ready_all(request[1], kPartitions);
  MUST(MPI_Waitall(kRequests, request, status));
  if (my_rank == 1) expect_receive(&status[1], 0, kPartitions * kCount);
  EXPECT(status[3].MPI_SOURCE == my_peer && status[3].MPI_TAG == 5, "plain receive: source %d",
         status[3].MPI_SOURCE);
  EXPECT(status[0].MPI_SOURCE == MPI_ANY_SOURCE && status[4].MPI_SOURCE == MPI_ANY_SOURCE,
         "null and inactive entries: sources %d and %d", status[0].MPI_SOURCE,
         status[4].MPI_SOURCE);
  EXPECT(request[2] == MPI_REQUEST_NULL && request[3] == MPI_REQUEST_NULL,
         "plain requests were not set to MPI_REQUEST_NULL");
  drop(&request[1]);
  drop(&request[4]);
}

CASE(C6_source_is_the_rank_in_the_communicator, .ranks = 3) {
  double data[kPartitions * kCount] = {0};
  MPI_Comm reversed;
  MUST(MPI_Comm_split(comm, 0, -my_rank, &reversed));
  const int rank = 2 - my_rank;
  MPI_Request request = MPI_REQUEST_NULL;
  if (rank == 2) request = psend(data, kPartitions, kCount, MPI_DOUBLE, 0, kTag, reversed);
  if (rank == 0) request = precv(data, kPartitions, kCount, MPI_DOUBLE, 2, kTag, reversed);
  if (rank != 1) {
    MPI_Status status;
    start(&request);
    if (rank == 2) ready_all(request, kPartitions);
    MUST(MPI_Wait(&request, &status));
    if (rank == 0) expect_receive(&status, 2, kPartitions * kCount);
    drop(&request);
  }
  MUST(MPI_Comm_free(&reversed));
}
