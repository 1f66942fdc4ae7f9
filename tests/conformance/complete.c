// Completion: never before every Pready, repeatable, and the answers of an inactive request.
#include <string.h>

#include "case.h"

enum { kTag = 29, kPartitions = 4 };

static MPI_Request pair_of(int* data) { return int_pair(data, kPartitions, kTag); }

static void mark(MPI_Request request, int* data, int round) {
  write_ints(data, kPartitions, round);
  ready_all(request, kPartitions);
}

static void check(const int* data, int round) { expect_ints(data, kPartitions, round); }

static void finish(MPI_Request* request, const int* data, int round) {
  complete(request);
  check(data, round);
}

/// `question` must answer no until the last Pready, in every round.
static void not_before_every_pready(bool (*question)(MPI_Request*)) {
  enum { kRounds = 4 };
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  for (int round = 1; round <= kRounds; ++round) {
    start(&request);
    const double end = now_s() + 0.005;
    while (now_s() < end && !case_failed()) {
      EXPECT(!question(&request), "round %d: %s completed before any pready", round,
             my_rank == 0 ? "the send" : "the receive");
    }
    if (my_rank == 0) {
      await(0, round, 5);
      if (case_failed()) case_abandon();
      write_ints(data, kPartitions, round);
      MUST(MPI_Pready_range(0, kPartitions - 2, request));
      for (int i = 0; i < 20; ++i) {
        EXPECT(!question(&request), "round %d: it completed before the last pready", round);
      }
      if (case_failed()) case_abandon();
      ready(request, kPartitions - 1);
    } else {
      post(0, round);
    }
    finish(&request, data, round);
  }
  drop(&request);
}

static bool got_status(MPI_Request* request) {
  int flag = 0;
  MUST(MPI_Request_get_status(*request, &flag, MPI_STATUS_IGNORE));
  return flag != 0;
}
static bool tested_all(MPI_Request* request) {
  int flag = 0;
  MUST(MPI_Testall(1, request, &flag, MPI_STATUSES_IGNORE));
  return flag != 0;
}
static bool tested_any(MPI_Request* request) {
  int flag = 0, index = 0;
  MUST(MPI_Testany(1, request, &index, &flag, MPI_STATUS_IGNORE));
  return flag != 0;
}
static bool tested_some(MPI_Request* request) {
  int done = 0, index = 0;
  MUST(MPI_Testsome(1, request, &done, &index, MPI_STATUSES_IGNORE));
  return done != 0;
}

CASE(C2_test_before_every_pready, .ranks = 2, .traits = kEveryLevel) {
  not_before_every_pready(tested);
}
CASE(C2_get_status_before_every_pready, .ranks = 2) { not_before_every_pready(got_status); }
CASE(C2_testall_before_every_pready, .ranks = 2) { not_before_every_pready(tested_all); }
CASE(C2_testany_before_every_pready, .ranks = 2) { not_before_every_pready(tested_any); }
CASE(C2_testsome_before_every_pready, .ranks = 2) { not_before_every_pready(tested_some); }

typedef struct Late {
  MPI_Request* request;
  int* data;
  int round;
} Late;

static void mark_late(int thread, void* argument) {
  Late* late = argument;
  if (thread == 0) {
    complete(late->request);
    EXPECT(peek(1) >= late->round, "round %d: Wait came back before the last pready", late->round);
  } else {
    MUST(MPI_Pready_range(0, kPartitions - 2, *late->request));
    pause_s(0.05);
    post(1, late->round);
    ready(*late->request, kPartitions - 1);
  }
}

CASE(C2_wait_until_every_pready, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  for (int round = 1; round <= 4; ++round) {
    start(&request);
    if (my_rank == 0) {
      write_ints(data, kPartitions, round);
      Late late = {&request, data, round};
      in_threads(2, mark_late, &late);
      if (case_failed()) case_abandon();
    } else {
      finish(&request, data, round);
    }
  }
  drop(&request);
}

CASE(C4_request_stays_and_is_inactive, .ranks = 2) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  const MPI_Request handle = request;
  for (int round = 1; round <= 3; ++round) {
    start(&request);
    if (my_rank == 0) mark(request, data, round);
    complete(&request);
    EXPECT(request == handle, "the handle changed");
    check(data, round);
  }
  drop(&request);
  EXPECT(request == MPI_REQUEST_NULL, "MPI_Request_free did not set MPI_REQUEST_NULL");
}

static void expect_empty(const MPI_Status* status) {
  int count = -1, cancelled = -1;
  MUST(MPI_Get_count(status, MPI_INT, &count));
  MUST(MPI_Test_cancelled(status, &cancelled));
  EXPECT(status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && count == 0 &&
             !cancelled,
         "not an empty status: source %d, tag %d, count %d, cancelled %d", status->MPI_SOURCE,
         status->MPI_TAG, count, cancelled);
}

CASE(C4_wait_and_test_of_an_inactive_request, .ranks = 2) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  for (int round = 1; round <= 2; ++round) {
    MPI_Status status = {.MPI_SOURCE = 3, .MPI_TAG = 3};
    int flag = 0, index = 0, done = 0;
    MUST(MPI_Wait(&request, &status));
    expect_empty(&status);
    status.MPI_SOURCE = 3;
    MUST(MPI_Test(&request, &flag, &status));
    EXPECT(flag, "MPI_Test of an inactive request is false");
    expect_empty(&status);
    flag = 0;
    MUST(MPI_Request_get_status(request, &flag, &status));
    EXPECT(flag, "MPI_Request_get_status of an inactive request is false");
    status.MPI_SOURCE = 3;
    MUST(MPI_Waitall(1, &request, &status));
    expect_empty(&status);
    status.MPI_SOURCE = 3;
    MUST(MPI_Testall(1, &request, &flag, &status));
    EXPECT(flag, "MPI_Testall of an inactive request is false");
    expect_empty(&status);
    MUST(MPI_Waitany(1, &request, &index, &status));
    EXPECT(index == MPI_UNDEFINED, "MPI_Waitany: index %d", index);
    MUST(MPI_Testany(1, &request, &index, &flag, &status));
    EXPECT(flag && index == MPI_UNDEFINED, "MPI_Testany: flag %d, index %d", flag, index);
    MUST(MPI_Waitsome(1, &request, &done, &index, &status));
    EXPECT(done == MPI_UNDEFINED, "MPI_Waitsome: outcount %d", done);
    start(&request);
    if (my_rank == 0) mark(request, data, round);
    finish(&request, data, round);
  }
  drop(&request);
}

CASE(C7_get_status_does_not_deactivate, .ranks = 2) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  for (int round = 1; round <= 3; ++round) {
    start(&request);
    if (my_rank == 0) mark(request, data, round);
    int flag = 0;
    MPI_Status status;
    const double end = now_s() + 5;
    while (!flag && now_s() < end) MUST(MPI_Request_get_status(request, &flag, &status));
    EXPECT(flag, "MPI_Request_get_status alone makes no progress");
    if (my_rank == 1) {
      check(data, round);
      EXPECT(status.MPI_SOURCE == 0 && status.MPI_TAG == kTag, "status: source %d, tag %d",
             status.MPI_SOURCE, status.MPI_TAG);
    }
    MUST(MPI_Wait(&request, &status));  // still active: the status is not the empty one
    EXPECT(my_rank == 0 || (status.MPI_SOURCE == 0 && status.MPI_TAG == kTag),
           "after MPI_Request_get_status MPI_Wait says source %d", status.MPI_SOURCE);
  }
  drop(&request);
}

CASE(C7_get_status_of_arrays, .ranks = 2) {
#if CASE_HAS_STATUS_ALL
  int data[2][kPartitions] = {{0}}, flag = 1, index = -1, done = -1, indices[2];
  MPI_Request request[2] = {pair_of(data[0]), pair_of(data[1])};
  for (int round = 1; round <= 2; ++round) {
    MUST(MPI_Startall(2, request));
    MUST(MPI_Request_get_status_all(2, request, &flag, MPI_STATUSES_IGNORE));
    EXPECT(!flag || my_rank == 1, "all of two fresh sends are complete");
    if (my_rank == 0) mark(request[1], data[1], round);
    flag = 0;
    while (!flag) MUST(MPI_Request_get_status_any(2, request, &index, &flag, MPI_STATUS_IGNORE));
    EXPECT(index == 1, "get_status_any names request %d, expected 1", index);
    MUST(MPI_Request_get_status_some(2, request, &done, indices, MPI_STATUSES_IGNORE));
    EXPECT(done == 1 && indices[0] == 1, "get_status_some: %d requests", done);
    MPI_Barrier(world);
    if (my_rank == 0) mark(request[0], data[0], round);
    flag = 0;
    while (!flag) MUST(MPI_Request_get_status_all(2, request, &flag, MPI_STATUSES_IGNORE));
    MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
    check(data[0], round);
    check(data[1], round);
  }
  drop(&request[0]);
  drop(&request[1]);
#else
  case_skip("MPI before 4.1");
#endif
}
