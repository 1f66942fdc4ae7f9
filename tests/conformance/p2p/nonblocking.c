// Nonblocking calls: requests, completion, MPI_Request_free, MPI_Request_get_status.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 51 };

CASE(NB1_completion_sets_the_request_to_null, .ranks = 2, .traits = kEveryLevel) {
  int out = 3, in = 0;
  for (int way = 0; way < 2; ++way) {
    MPI_Request send = isend_int(&out, my_peer, kTag), receive = irecv_int(&in, my_peer, kTag);
    if (way == 0) {
      complete(&send);
      complete(&receive);
    } else {
      EXPECT(completes(&send, MPI_STATUS_IGNORE, 5) && completes(&receive, MPI_STATUS_IGNORE, 5),
             "Test never succeeds");
    }
    EXPECT(send == MPI_REQUEST_NULL && receive == MPI_REQUEST_NULL, "requests are not null");
    EXPECT_DATA(in == 3, "received %d", in);
  }
}

CASE(NB1_null_requests_are_complete_and_empty, .ranks = 2) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status;
  int flag = 0;
  spoil(&status);
  MUST(MPI_Wait(&request, &status));
  EXPECT_EMPTY(&status);
  spoil(&status);
  MUST(MPI_Test(&request, &flag, &status));
  EXPECT(flag, "Test of a null request is false");
  EXPECT_EMPTY(&status);
  spoil(&status);
  flag = 0;
  MUST(MPI_Request_get_status(request, &flag, &status));
  EXPECT(flag, "get_status of a null request is false");
  EXPECT_EMPTY(&status);
}

CASE(NB2_receive_is_open_until_the_message_comes, .ranks = 2) {
  if (my_rank == 1) {
    int value = 0;
    MPI_Request request = irecv_int(&value, 0, kTag);
    EXPECT(stays_open(&request, 0.01), "a receive is complete without a message");
    post(0, 1);
    complete(&request);
    EXPECT_DATA(value == 5, "received %d", value);
  } else {
    await(0, 1, 5);
    send_int(5, 1, kTag);
  }
}

/// Requests complete in any order that the program asks for.
CASE(NB3_two_thousand_requests_in_reverse, .ranks = 2) {
  enum { kRequests = 2000 };
  int* value = memory(kRequests * sizeof(int));
  MPI_Request* request = memory(kRequests * sizeof(MPI_Request));
  for (int i = 0; i < kRequests; ++i) {
    value[i] = my_rank == 0 ? i : -1;
    request[i] = my_rank == 0 ? isend_int(&value[i], 1, i % 7) : irecv_int(&value[i], 0, i % 7);
  }
  for (int i = kRequests - 1; i >= 0; --i) {
    MPI_Status status;
    MUST(MPI_Wait(&request[i], &status));
    if (my_rank == 1) EXPECT_STATUS(&status, 0, i % 7, 4);
    EXPECT_DATA(value[i] == i, "request %d: %d", i, value[i]);
  }
  free(value);
  free(request);
}

/// A send of each size may stay open while the sender reads the buffer; reading is allowed.
CASE(NB3_one_buffer_in_several_sends, .ranks = 2) {
  enum { kBytes = 1 << 20, kCopies = 4 };
  unsigned char* data = memory(kBytes);
  if (my_rank == 0) {
    MPI_Request request[kCopies];
    fill(data, kBytes, 21, 0);
    for (int i = 0; i < kCopies; ++i) request[i] = isend(data, kBytes, 1, kTag);
    EXPECT_STREAM(data, kBytes, 21, 0);
    MUST(MPI_Waitall(kCopies, request, MPI_STATUSES_IGNORE));
  } else {
    for (int i = 0; i < kCopies; ++i) {
      memset(data, 0, kBytes);
      MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, kBytes, 21, 0);
    }
  }
  free(data);
}

static const int kFreeBytes[] = {0, 8, 4096, 2 << 20};

/// A send that was freed while it was active arrives all the same.
CASE(NB4_freed_sends_arrive, .ranks = 2) {
  for (int i = 0; i < 8; ++i) {
    const int bytes = kFreeBytes[i / 2];
    unsigned char* data = memory((size_t)bytes);
    if (my_rank == 0) {
      fill(data, (size_t)bytes, 22, (uint64_t)i);
      MPI_Request request = i % 2 ? issend(data, bytes, 1, kTag) : isend(data, bytes, 1, kTag);
      MUST(MPI_Request_free(&request));
      EXPECT(request == MPI_REQUEST_NULL, "the freed request is not null");
      post(0, i + 1);
      recv_int(1, kTag, MPI_STATUS_IGNORE);  // until then the buffer is MPI's
    } else {
      await(0, i + 1, 5);
      MUST(MPI_Recv(data, bytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, (size_t)bytes, 22, (uint64_t)i);
      send_int(0, 0, kTag);
    }
    free(data);
  }
}

/// A receive that was freed while it was active still takes its message.
CASE(NB4_freed_receives_take_their_message, .ranks = 2) {
  for (int i = 0; i < 4; ++i) {
    const int bytes = kFreeBytes[i];
    unsigned char* data = guarded((size_t)bytes);
    if (my_rank == 1) {
      MPI_Request request = irecv(data, bytes, 0, kTag);
      MUST(MPI_Request_free(&request));
      EXPECT(request == MPI_REQUEST_NULL, "the freed request is not null");
      post(0, i + 1);
      EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == i, "the second message");
      const double end = now_s() + 5;
      while (bytes > 0 && wrong_byte(data, 0, (size_t)bytes, 23, (uint64_t)i) >= 0 &&
             now_s() < end) {
        int flag;
        MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE));
      }
      EXPECT_STREAM(data, (size_t)bytes, 23, (uint64_t)i);
      check_guards(data, (size_t)bytes);
    } else {
      await(0, i + 1, 5);
      fill(data, (size_t)bytes, 23, (uint64_t)i);
      MUST(MPI_Send(data, bytes, MPI_BYTE, 1, kTag, comm));
      send_int(i, 1, kTag);
    }
    meet();
    release_guarded(data);
  }
}

CASE(NB5_get_status_leaves_the_request, .ranks = 2) {
  int value = 9;
  if (my_rank == 0) {
    send_int(value, 1, kTag);
    return;
  }
  MPI_Request request = irecv_int(&value, MPI_ANY_SOURCE, MPI_ANY_TAG);
  for (int i = 0; i < 3; ++i) {
    MPI_Status status;
    int flag = 0;
    const double end = now_s() + 5;
    while (!flag && now_s() < end) MUST(MPI_Request_get_status(request, &flag, &status));
    REQUIRE(flag && request != MPI_REQUEST_NULL, "get_status freed the request or never succeeds");
    EXPECT_STATUS(&status, 0, kTag, 4);
  }
  MPI_Status status;
  MUST(MPI_Wait(&request, &status));
  EXPECT_STATUS(&status, 0, kTag, 4);
  EXPECT_DATA(value == 9, "received %d", value);
}

CASE(NB5_get_status_of_arrays, .ranks = 2) {
#if CASE_HAS_STATUS_ALL
  int value[3] = {0, 1, 2};
  if (my_rank == 0) {
    send_int(value[1], 1, 1);
    await(0, 1, 5);
    send_int(value[0], 1, 0);
    send_int(value[2], 1, 2);
    return;
  }
  MPI_Request request[4];
  for (int i = 0; i < 3; ++i) request[i] = irecv_int(&value[i], 0, i);
  request[3] = MPI_REQUEST_NULL;
  MPI_Status status[4];
  int flag = 0, index = -1, done = 0, indices[4];
  while (!flag) MUST(MPI_Request_get_status_any(4, request, &index, &flag, status));
  EXPECT(index == 1, "get_status_any names request %d", index);
  EXPECT_STATUS(&status[0], 0, 1, 4);
  MUST(MPI_Request_get_status_some(4, request, &done, indices, status));
  EXPECT(done == 1 && indices[0] == 1, "get_status_some: %d, first %d", done, indices[0]);
  MUST(MPI_Request_get_status_all(4, request, &flag, status));
  EXPECT(!flag, "get_status_all is true with two open receives");
  post(0, 1);
  while (!flag) MUST(MPI_Request_get_status_all(4, request, &flag, status));
  for (int i = 0; i < 3; ++i) EXPECT_STATUS(&status[i], 0, i, 4);
  EXPECT_EMPTY(&status[3]);
  MUST(MPI_Waitall(4, request, status));
  for (int i = 0; i < 3; ++i) EXPECT_STATUS(&status[i], 0, i, 4);
#else
  case_skip("MPI before 4.1");
#endif
}

/// Starting is local: many sends and receives start before the peer does anything.
CASE(NB6_starting_is_local, .ranks = 2) {
  enum { kRequests = 64, kBytes = 200000 };
  unsigned char *out = memory(kBytes), *in = memory((size_t)kRequests * kBytes);
  MPI_Request request[2 * kRequests];
  fill(out, kBytes, 24, 0);
  if (my_rank == 1) await(0, 1, 5);
  for (int i = 0; i < kRequests; ++i) {
    request[2 * i] = irecv(in + (size_t)i * kBytes, kBytes, my_peer, kTag + i);
    request[2 * i + 1] = isend(out, kBytes, my_peer, kTag + i);
  }
  if (my_rank == 0) post(0, 1);
  MUST(MPI_Waitall(2 * kRequests, request, MPI_STATUSES_IGNORE));
  for (int i = 0; i < kRequests; ++i) EXPECT_STREAM(in + (size_t)i * kBytes, kBytes, 24, 0);
  free(in);
  free(out);
}

/// MPICH's own call for one request, without a status.
CASE(NB5_is_complete_of_mpich, .ranks = 2) {
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 50000000
  int value = 0;
  MPI_Request request = irecv_int(&value, my_peer, kTag), inactive;
  MUST(MPI_Recv_init(&value, 1, MPI_INT, my_peer, kTag, comm, &inactive));
  EXPECT(MPIX_Request_is_complete(inactive), "an inactive request is incomplete");
  EXPECT(!MPIX_Request_is_complete(request), "complete without a message");
  meet();
  send_int(my_rank + 1, my_peer, kTag);
  const double end = now_s() + 5;
  while (!MPIX_Request_is_complete(request) && now_s() < end) {
    int flag;
    MUST(MPI_Iprobe(MPI_ANY_SOURCE, kTag + 1, comm, &flag, MPI_STATUS_IGNORE));
  }
  EXPECT(MPIX_Request_is_complete(request), "incomplete although the message has come");
  EXPECT_DATA(value == my_peer + 1, "received %d", value);
  complete(&request);
  drop(&inactive);
#else
  case_skip("another MPI");
#endif
}
