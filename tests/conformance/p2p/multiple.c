// Completion of several requests: all, any, some, with null, inactive and foreign requests between.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 61, kMany = 8 };

/// Rank 1 posts kMany receives by tag, rank 0 sends the tags that rank 1 names.
static void serve(void) {
  for (;;) {
    const int tag = recv_int(1, 1000, MPI_STATUS_IGNORE);
    if (tag < 0) return;
    send_int(10 * tag, 1, tag);
  }
}
static void ask(int tag) { send_int(tag, 0, 1000); }

typedef struct Receives {
  int value[kMany];
  MPI_Request request[kMany];
  MPI_Status status[kMany];
} Receives;

static void post_receives(Receives* r) {
  for (int i = 0; i < kMany; ++i) {
    r->value[i] = -1;
    r->request[i] = irecv_int(&r->value[i], 0, i);
    spoil(&r->status[i]);
  }
}

static void expect_received(const Receives* r, int i, const MPI_Status* status) {
  EXPECT_DATA(r->value[i] == 10 * i, "receive %d got %d", i, r->value[i]);
  EXPECT(r->request[i] == MPI_REQUEST_NULL, "request %d is not null", i);
  EXPECT_STATUS(status, 0, i, 4);
}

CASE(MC1_waitall, .ranks = 2, .traits = kEveryLevel) {
  if (my_rank == 0) {
    serve();
    return;
  }
  Receives r;
  post_receives(&r);
  for (int i = kMany - 1; i >= 0; --i) ask(i);
  MUST(MPI_Waitall(kMany, r.request, r.status));
  for (int i = 0; i < kMany; ++i) expect_received(&r, i, &r.status[i]);
  post_receives(&r);
  for (int i = 0; i < kMany; ++i) ask(i);
  MUST(MPI_Waitall(kMany, r.request, MPI_STATUSES_IGNORE));
  for (int i = 0; i < kMany; ++i) EXPECT_DATA(r.value[i] == 10 * i, "%d: %d", i, r.value[i]);
  ask(-1);
}

CASE(MC1_testall_is_all_or_nothing, .ranks = 2) {
  if (my_rank == 0) {
    serve();
    return;
  }
  Receives r;
  int flag = 0;
  post_receives(&r);
  for (int i = 0; i < kMany; ++i) {
    if (i == kMany / 2) continue;
    ask(i);
  }
  const double end = now_s() + 0.02;
  while (now_s() < end) {
    MUST(MPI_Testall(kMany, r.request, &flag, r.status));
    REQUIRE(!flag, "Testall is true with an open receive");
  }
  for (int i = 0; i < kMany; ++i)
    REQUIRE(r.request[i] != MPI_REQUEST_NULL, "request %d is gone", i);
  ask(kMany / 2);
  while (!flag) MUST(MPI_Testall(kMany, r.request, &flag, r.status));
  for (int i = 0; i < kMany; ++i) expect_received(&r, i, &r.status[i]);
  ask(-1);
}

CASE(MC2_waitany_and_testany, .ranks = 2) {
  if (my_rank == 0) {
    serve();
    return;
  }
  for (int way = 0; way < 2; ++way) {
    Receives r;
    post_receives(&r);
    for (int n = 0; n < kMany; ++n) {
      const int asked = (5 * n + 3) % kMany;
      int index = -1, flag = 0;
      MPI_Status status;
      spoil(&status);
      ask(asked);
      if (way == 0) MUST(MPI_Waitany(kMany, r.request, &index, &status));
      while (way == 1 && !flag) MUST(MPI_Testany(kMany, r.request, &index, &flag, &status));
      REQUIRE(index == asked, "index %d, expected %d", index, asked);
      expect_received(&r, index, &status);
    }
    int index = 0, flag = 0;
    MPI_Status status;
    MUST(MPI_Waitany(kMany, r.request, &index, &status));
    EXPECT(index == MPI_UNDEFINED, "Waitany of null requests: index %d", index);
    EXPECT_EMPTY(&status);
    MUST(MPI_Testany(kMany, r.request, &index, &flag, &status));
    EXPECT(flag && index == MPI_UNDEFINED, "Testany of null requests: %d, %d", flag, index);
    EXPECT_EMPTY(&status);
  }
  ask(-1);
}

CASE(MC2_testany_of_open_receives, .ranks = 2) {
  int value[2], index = 0, flag = 1;
  MPI_Request request[3] = {irecv_int(&value[0], my_peer, 1), MPI_REQUEST_NULL,
                            irecv_int(&value[1], my_peer, 2)};
  MUST(MPI_Testany(3, request, &index, &flag, MPI_STATUS_IGNORE));
  EXPECT(!flag && index == MPI_UNDEFINED, "flag %d, index %d", flag, index);
  meet();
  send_int(1, my_peer, 1);
  send_int(2, my_peer, 2);
  MUST(MPI_Waitall(3, request, MPI_STATUSES_IGNORE));
}

CASE(MC3_waitsome_and_testsome, .ranks = 2) {
  if (my_rank == 0) {
    serve();
    return;
  }
  for (int way = 0; way < 2; ++way) {
    Receives r;
    int finished = 0;
    bool seen[kMany] = {false};
    post_receives(&r);
    for (int i = kMany - 1; i >= 0; --i) ask(i);
    while (finished < kMany) {
      int done = -1, index[kMany];
      if (way == 0) MUST(MPI_Waitsome(kMany, r.request, &done, index, r.status));
      if (way == 1) MUST(MPI_Testsome(kMany, r.request, &done, index, r.status));
      REQUIRE(done >= 1 - way && done <= kMany - finished, "outcount %d", done);
      for (int d = 0; d < done; ++d) {
        REQUIRE(index[d] >= 0 && index[d] < kMany && !seen[index[d]], "index %d", index[d]);
        seen[index[d]] = true;
        expect_received(&r, index[d], &r.status[d]);
      }
      finished += done;
    }
    int done = 0, index[kMany];
    MUST(MPI_Waitsome(kMany, r.request, &done, index, r.status));
    EXPECT(done == MPI_UNDEFINED, "Waitsome of null requests: %d", done);
    MUST(MPI_Testsome(kMany, r.request, &done, index, r.status));
    EXPECT(done == MPI_UNDEFINED, "Testsome of null requests: %d", done);
  }
  ask(-1);
}

CASE(MC4_empty_arrays, .ranks = 2) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status;
  int index = 0, flag = 0, done = 0;
  MUST(MPI_Waitall(0, &request, &status));
  MUST(MPI_Testall(0, &request, &flag, &status));
  EXPECT(flag, "Testall of nothing is false");
  MUST(MPI_Waitany(0, &request, &index, &status));
  EXPECT(index == MPI_UNDEFINED, "Waitany of nothing: %d", index);
  flag = 0;
  MUST(MPI_Testany(0, &request, &index, &flag, &status));
  EXPECT(flag && index == MPI_UNDEFINED, "Testany of nothing: %d, %d", flag, index);
  MUST(MPI_Waitsome(0, &request, &done, &index, &status));
  EXPECT(done == MPI_UNDEFINED, "Waitsome of nothing: %d", done);
  MUST(MPI_Testsome(0, &request, &done, &index, &status));
  EXPECT(done == MPI_UNDEFINED, "Testsome of nothing: %d", done);
}

enum { kMixed = 6, kInactive = 1, kNull = 3 };  // places in a mixed array

/// A receive at 0 and 4, an inactive receive at 1, null at 3, sends at 2 and 5.
static void open_mixed(MPI_Request* request, int* value) {
  for (int i = 0; i < kMixed; ++i) request[i] = MPI_REQUEST_NULL;
  request[0] = irecv_int(&value[0], my_peer, 0);
  MUST(MPI_Recv_init(&value[1], 1, MPI_INT, my_peer, 1, comm, &request[kInactive]));
  value[2] = 42;
  value[5] = 45;
  request[2] = isend_int(&value[2], my_peer, 0);
  request[4] = irecv_int(&value[4], my_peer, 4);
  request[5] = isend_int(&value[5], my_peer, 4);
}

CASE(MC5_null_and_inactive_requests_in_waitall, .ranks = 2) {
  MPI_Request request[kMixed];
  MPI_Status status[kMixed];
  int value[kMixed] = {0};
  open_mixed(request, value);
  MUST(MPI_Waitall(kMixed, request, status));
  EXPECT_STATUS(&status[0], my_peer, 0, 4);
  EXPECT_STATUS(&status[4], my_peer, 4, 4);
  EXPECT_EMPTY(&status[kInactive]);
  EXPECT_EMPTY(&status[kNull]);
  EXPECT_DATA(value[0] == 42 && value[4] == 45, "%d, %d", value[0], value[4]);
  EXPECT(request[kInactive] != MPI_REQUEST_NULL, "the inactive request is gone");
  drop(&request[kInactive]);
}

CASE(MC5_null_and_inactive_requests_in_waitany, .ranks = 2) {
  MPI_Request request[kMixed];
  int value[kMixed] = {0}, index = -1;
  bool seen[kMixed] = {false};
  open_mixed(request, value);
  for (int n = 0; n < 4; ++n) {
    MUST(MPI_Waitany(kMixed, request, &index, MPI_STATUS_IGNORE));
    REQUIRE(index >= 0 && index < kMixed && index != kInactive && index != kNull && !seen[index],
            "index %d", index);
    seen[index] = true;
  }
  MUST(MPI_Waitany(kMixed, request, &index, MPI_STATUS_IGNORE));
  EXPECT(index == MPI_UNDEFINED, "with no active request: index %d", index);
  EXPECT_DATA(value[0] == 42 && value[4] == 45, "%d, %d", value[0], value[4]);
  drop(&request[kInactive]);
}

CASE(MC5_null_and_inactive_requests_in_testsome, .ranks = 2) {
  MPI_Request request[kMixed];
  int value[kMixed] = {0}, done = 0, index[kMixed];
  open_mixed(request, value);
  for (int n = 0; n < 4; n += done) {
    MUST(MPI_Testsome(kMixed, request, &done, index, MPI_STATUSES_IGNORE));
    REQUIRE(done >= 0, "outcount %d with active requests", done);
    for (int d = 0; d < done; ++d) {
      EXPECT(index[d] != kInactive && index[d] != kNull, "index %d", index[d]);
    }
  }
  MUST(MPI_Testsome(kMixed, request, &done, index, MPI_STATUSES_IGNORE));
  EXPECT(done == MPI_UNDEFINED, "with no active request: outcount %d", done);
  drop(&request[kInactive]);
}

/// Of several requests one is truncated: MPI_ERR_IN_STATUS, the others' statuses are right.
CASE(MC6_error_in_status_of_waitall, .ranks = 2) {
  int value[3] = {1, 2, 3}, in[3] = {0};
  if (my_rank == 0) {
    for (int i = 0; i < 3; ++i) MUST(MPI_Send(value, i == 1 ? 3 : 1, MPI_INT, 1, i, comm));
    return;
  }
  MPI_Request request[4] = {MPI_REQUEST_NULL};
  MPI_Status status[4];
  for (int i = 0; i < 3; ++i) request[i] = irecv_int(&in[i], 0, i);
  request[3] = MPI_REQUEST_NULL;
  const int code = MPI_Waitall(4, request, status);
  EXPECT(class_of(code) == MPI_ERR_IN_STATUS, "class %d", class_of(code));
  if (class_of(code) != MPI_ERR_IN_STATUS) return;
  EXPECT(class_of(status[1].MPI_ERROR) == MPI_ERR_TRUNCATE, "the truncated receive says %d",
         status[1].MPI_ERROR);
  for (int i = 0; i < 3; i += 2) {
    EXPECT(status[i].MPI_ERROR == MPI_SUCCESS || status[i].MPI_ERROR == MPI_ERR_PENDING,
           "receive %d says %d", i, status[i].MPI_ERROR);
    if (status[i].MPI_ERROR == MPI_ERR_PENDING) complete(&request[i]);
  }
  EXPECT_DATA(in[0] == 1 && in[2] == 1, "%d, %d", in[0], in[2]);
}

CASE(MC6_error_of_waitany_and_waitsome, .ranks = 2) {
  int value[3] = {1, 2, 3}, in = 0;
  if (my_rank == 0) {
    for (int i = 0; i < 2; ++i) MUST(MPI_Send(value, 3, MPI_INT, 1, kTag, comm));
    return;
  }
  MPI_Request request[2] = {MPI_REQUEST_NULL, irecv_int(&in, 0, kTag)};
  int index = -1, done = 0;
  int code = MPI_Waitany(2, request, &index, MPI_STATUS_IGNORE);
  EXPECT(class_of(code) == MPI_ERR_TRUNCATE && index == 1, "Waitany: class %d, index %d",
         class_of(code), index);
  request[1] = irecv_int(&in, 0, kTag);
  MPI_Status status[2];
  int indices[2];
  code = MPI_Waitsome(2, request, &done, indices, status);
  EXPECT(class_of(code) == MPI_ERR_IN_STATUS && done == 1 && indices[0] == 1,
         "Waitsome: class %d, outcount %d", class_of(code), done);
  EXPECT(class_of(status[0].MPI_ERROR) == MPI_ERR_TRUNCATE, "its status says %d",
         status[0].MPI_ERROR);
}

// Generalized requests and requests of collective calls
// ---------------------------------------------

static int query_general(void* state, MPI_Status* status) {
  MPI_Status_set_elements(status, MPI_INT, *(int*)state);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = 77;
  status->MPI_TAG = 78;
  return MPI_SUCCESS;
}
static int free_general(void* state) {
  *(int*)state = -1;
  return MPI_SUCCESS;
}
static int cancel_general(void* state, int is_complete) {
  (void)state;
  (void)is_complete;
  return MPI_SUCCESS;
}

CASE(GR1_generalized_and_collective_requests_beside_messages, .ranks = 2) {
  int state = 5, out = 6, in = 0, sum = 0;
  MPI_Request request[5] = {MPI_REQUEST_NULL};
  MPI_Status status[5];
  MUST(MPI_Grequest_start(query_general, free_general, cancel_general, &state, &request[0]));
  const MPI_Request general = request[0];
  request[1] = irecv_int(&in, my_peer, kTag);
  MUST(MPI_Iallreduce(&my_rank, &sum, 1, MPI_INT, MPI_SUM, comm, &request[2]));
  request[3] = MPI_REQUEST_NULL;
  request[4] = isend_int(&out, my_peer, kTag);
  int flag = 1, done = 0, indices[5];
  MUST(MPI_Testall(5, request, &flag, MPI_STATUSES_IGNORE));
  EXPECT(!flag, "Testall is true with an open generalized request");
  for (int n = 0; n < 3; n += done) {
    MUST(MPI_Waitsome(5, request, &done, indices, status));
    for (int d = 0; d < done; ++d) {
      EXPECT(indices[d] != 0, "the generalized request is complete");
      if (indices[d] == 1) EXPECT_STATUS(&status[d], my_peer, kTag, 4);
    }
  }
  MUST(MPI_Grequest_complete(general));
  MUST(MPI_Waitall(5, request, status));
  int count = 0;
  MUST(MPI_Get_count(&status[0], MPI_INT, &count));
  EXPECT(status[0].MPI_SOURCE == 77 && status[0].MPI_TAG == 78 && count == 5,
         "status of the generalized request: %d, %d, %d", status[0].MPI_SOURCE, status[0].MPI_TAG,
         count);
  EXPECT(state == -1, "the free callback was not called");
  EXPECT_DATA(in == 6 && sum == 1, "received %d, sum %d", in, sum);
}
