// Persistent requests: init, start, complete, free.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 91, kRounds = 20 };

typedef int (*SendInit)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

static void rounds(SendInit init, int bytes, bool is_ready_mode) {
  unsigned char* data = guarded((size_t)bytes);
  MPI_Request request;
  if (my_rank == 0) {
    MUST(init(data, bytes, MPI_BYTE, 1, kTag, comm, &request));
  } else {
    MUST(MPI_Recv_init(data, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &request));
  }
  const MPI_Request handle = request;
  for (int round = 0; round < kRounds; ++round) {
    MPI_Status status;
    if (my_rank == 0) {
      fill(data, (size_t)bytes, 51, (uint64_t)round);
      if (is_ready_mode) await(0, round + 1, 5);
    }
    MUST(MPI_Start(&request));
    if (my_rank == 1 && is_ready_mode) post(0, round + 1);
    MUST(MPI_Wait(&request, &status));
    EXPECT(request == handle, "the handle changed");
    if (my_rank == 1) {
      EXPECT_STATUS(&status, 0, kTag, bytes);
      EXPECT_STREAM(data, (size_t)bytes, 51, (uint64_t)round);
      memset(data, 0, (size_t)bytes);
    }
  }
  drop(&request);
  EXPECT(request == MPI_REQUEST_NULL, "Request_free left a handle");
  check_guards(data, (size_t)bytes);
  release_guarded(data);
}

static void every_size(SendInit init, bool is_ready_mode) {
  static const int kBytes[] = {0, 8, 3000, 300000};
  for (int i = 0; i < 4; ++i) {
    rounds(init, kBytes[i], is_ready_mode);
    if (my_rank == 0) post(0, 0);
    meet();
  }
}

CASE(PE1_send_init, .ranks = 2, .traits = kEveryLevel | kSessions) {
  every_size(MPI_Send_init, false);
}
CASE(PE1_ssend_init, .ranks = 2) { every_size(MPI_Ssend_init, false); }
CASE(PE1_ssend_init_waits_for_the_receive, .ranks = 2) {
  int value = 8;
  if (my_rank == 0) {
    MPI_Request request;
    MUST(MPI_Ssend_init(&value, 1, MPI_INT, 1, kTag, comm, &request));
    for (int round = 0; round < 3; ++round) {
      MUST(MPI_Start(&request));
      EXPECT(stays_open(&request, 0.01), "complete before the receive is posted");
      post(0, round + 1);
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    drop(&request);
  } else {
    for (int round = 0; round < 3; ++round) {
      EXPECT(await(0, round + 1, 5), "the sender is not through");
      EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == 8, "the message");
    }
  }
}
CASE(PE1_rsend_init, .ranks = 2) { every_size(MPI_Rsend_init, true); }
CASE(PE1_bsend_init, .ranks = 2) {
  const int size = kRounds * (300000 + 200 + MPI_BSEND_OVERHEAD);
  void *space = memory((size_t)size), *back;
  int bytes;
  MUST(MPI_Buffer_attach(space, size));
  every_size(MPI_Bsend_init, false);
  MUST(MPI_Buffer_detach(&back, &bytes));
  free(space);
}

CASE(PE2_inactive_requests_are_complete_and_empty, .ranks = 2) {
  int value = 1, flag = 0, index = 0, done = 0;
  MPI_Request request[2];
  MPI_Status status;
  MUST(MPI_Send_init(&value, 1, MPI_INT, my_peer, kTag, comm, &request[0]));
  MUST(MPI_Recv_init(&value, 1, MPI_INT, my_peer, kTag, comm, &request[1]));
  for (int i = 0; i < 2; ++i) {
    spoil(&status);
    MUST(MPI_Wait(&request[i], &status));
    EXPECT_EMPTY(&status);
    spoil(&status);
    flag = 0;
    MUST(MPI_Test(&request[i], &flag, &status));
    EXPECT(flag, "Test of an inactive request is false");
    EXPECT_EMPTY(&status);
    flag = 0;
    MUST(MPI_Request_get_status(request[i], &flag, &status));
    EXPECT(flag, "get_status of an inactive request is false");
  }
  MUST(MPI_Waitany(2, request, &index, &status));
  EXPECT(index == MPI_UNDEFINED, "Waitany: index %d", index);
  MUST(MPI_Waitsome(2, request, &done, &index, &status));
  EXPECT(done == MPI_UNDEFINED, "Waitsome: outcount %d", done);
  MUST(MPI_Testall(2, request, &flag, MPI_STATUSES_IGNORE));
  EXPECT(flag, "Testall is false");
  drop(&request[0]);
  drop(&request[1]);
}

CASE(PE3_startall_of_mixed_requests, .ranks = 2) {
  enum { kRequests = 8 };
  int value[kRequests];
  MPI_Request request[kRequests];
  for (int i = 0; i < kRequests; ++i) {
    if (i % 2 == 0) {
      MUST(MPI_Recv_init(&value[i], 1, MPI_INT, my_peer, i + 1, comm, &request[i]));
    } else if (i % 4 == 1) {
      MUST(MPI_Ssend_init(&value[i], 1, MPI_INT, my_peer, i, comm, &request[i]));
    } else {
      MUST(MPI_Send_init(&value[i], 1, MPI_INT, my_peer, i, comm, &request[i]));
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kRequests; ++i) value[i] = i % 2 ? 100 * round + i : -1;
    MPI_Status status[kRequests];
    MUST(MPI_Startall(kRequests, request));
    MUST(MPI_Waitall(kRequests, request, status));
    for (int i = 0; i < kRequests; i += 2) {
      EXPECT_STATUS(&status[i], my_peer, i + 1, 4);
      EXPECT_DATA(value[i] == 100 * round + i + 1, "round %d, receive %d: %d", round, i, value[i]);
    }
  }
  for (int i = 0; i < kRequests; ++i) drop(&request[i]);
}

/// Persistent and other operations match each other; the order is that of the starts.
CASE(PE4_persistent_and_plain_operations_match, .ranks = 2) {
  int value[4] = {10, 11, 12, 13};
  MPI_Request request[2];
  for (int round = 0; round < kRounds; ++round) {
    if (my_rank == 0) {
      MUST(MPI_Send_init(&value[1], 1, MPI_INT, 1, kTag, comm, &request[1]));
      MUST(MPI_Send_init(&value[0], 1, MPI_INT, 1, kTag, comm, &request[0]));
      MUST(MPI_Start(&request[0]));
      MUST(MPI_Start(&request[1]));
      MUST(MPI_Send(&value[2], 1, MPI_INT, 1, kTag, comm));
      MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
    } else {
      memset(value, 0, sizeof(value));
      MUST(MPI_Recv_init(&value[1], 1, MPI_INT, 0, kTag, comm, &request[1]));
      request[0] = irecv_int(&value[0], 0, kTag);
      MUST(MPI_Start(&request[1]));
      value[2] = recv_int(0, kTag, MPI_STATUS_IGNORE);
      MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
      EXPECT_DATA(value[0] == 10 && value[1] == 11 && value[2] == 12, "%d, %d, %d", value[0],
                  value[1], value[2]);
    }
    drop(&request[1]);
    if (my_rank == 0) drop(&request[0]);
  }
}

CASE(PE5_free_of_an_active_persistent_request, .ranks = 2) {
  enum { kBytes = 1 << 20 };
  unsigned char* data = memory(kBytes);
  for (uint64_t round = 0; round < 4; ++round) {
    if (my_rank == 0) {
      MPI_Request request;
      fill(data, kBytes, 52, round);
      MUST(MPI_Send_init(data, round % 2 ? kBytes : 8, MPI_BYTE, 1, kTag, comm, &request));
      MUST(MPI_Start(&request));
      MUST(MPI_Request_free(&request));
      EXPECT(request == MPI_REQUEST_NULL, "the freed request is not null");
      recv_int(1, kTag, MPI_STATUS_IGNORE);
    } else {
      const int bytes = round % 2 ? kBytes : 8;
      MUST(MPI_Recv(data, bytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, (size_t)bytes, 52, round);
      send_int(0, 0, kTag);
    }
  }
  free(data);
}

CASE(PE5_never_started_requests_are_freed, .ranks = 2) {
  int value = 0;
  for (int i = 0; i < 2000; ++i) {
    MPI_Request request;
    MUST(MPI_Recv_init(&value, 1, MPI_INT, my_peer, kTag, comm, &request));
    drop(&request);
    MUST(MPI_Send_init(&value, 1, MPI_INT, my_peer, kTag, comm, &request));
    drop(&request);
  }
}

CASE(PE6_null_process, .ranks = 2) {
  int value = 3;
  MPI_Request request[2];
  MPI_Status status[2];
  MUST(MPI_Send_init(&value, 1, MPI_INT, MPI_PROC_NULL, kTag, comm, &request[0]));
  MUST(MPI_Recv_init(&value, 1, MPI_INT, MPI_PROC_NULL, kTag, comm, &request[1]));
  for (int round = 0; round < 3; ++round) {
    MUST(MPI_Startall(2, request));
    MUST(MPI_Waitall(2, request, status));
    EXPECT_STATUS(&status[1], MPI_PROC_NULL, MPI_ANY_TAG, 0);
    EXPECT_DATA(value == 3, "a receive from nowhere wrote %d", value);
  }
  drop(&request[0]);
  drop(&request[1]);
}

/// The type may be freed after init; the requests go on.
CASE(PE6_type_freed_after_init, .ranks = 2) {
  int data[30];
  MPI_Datatype type;
  MPI_Request request;
  MUST(MPI_Type_vector(10, 1, 3, MPI_INT, &type));
  MUST(MPI_Type_commit(&type));
  if (my_rank == 0) MUST(MPI_Send_init(data, 1, type, 1, kTag, comm, &request));
  if (my_rank == 1) MUST(MPI_Recv_init(data, 1, type, 0, kTag, comm, &request));
  MUST(MPI_Type_free(&type));
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 30; ++i) data[i] = my_rank == 0 ? 100 * round + i : -1;
    MUST(MPI_Start(&request));
    complete(&request);
    for (int i = 0; my_rank == 1 && i < 30; ++i) {
      EXPECT_DATA(data[i] == (i % 3 ? -1 : 100 * round + i), "round %d, %d: %d", round, i, data[i]);
    }
  }
  drop(&request);
}

/// A receive that is freed before its message comes still takes it.
CASE(PE5_freed_receives_take_their_message, .ranks = 2) {
  enum { kElements = 1000 };
  int data[2 * kElements];
  if (my_rank == 0) {
    for (int i = 0; i < kElements; ++i) data[i] = i + 1;
    await(0, 1, 5);
    MUST(MPI_Send((const void*)data, kElements, MPI_INT, 1, kTag, comm));
    send_int(0, 1, kTag);
    return;
  }
  MPI_Datatype type;
  MPI_Request request;
  for (int i = 0; i < 2 * kElements; ++i) data[i] = 0;
  MUST(MPI_Type_vector(kElements, 1, 2, MPI_INT, &type));
  MUST(MPI_Type_commit(&type));
  MUST(MPI_Recv_init((void*)data, 1, type, 0, kTag, comm, &request));
  MUST(MPI_Type_free(&type));
  MUST(MPI_Start(&request));
  MUST(MPI_Request_free(&request));
  EXPECT(request == MPI_REQUEST_NULL, "the freed request is not null");
  post(0, 1);
  recv_int(0, kTag, MPI_STATUS_IGNORE);
  const double end = now_s() + 5;
  while (data[2 * kElements - 2] == 0 && now_s() < end) {
    int flag;
    MUST(MPI_Iprobe(0, kTag + 1, comm, &flag, MPI_STATUS_IGNORE));
  }
  for (int i = 0; i < 2 * kElements; ++i) {
    EXPECT_DATA(data[i] == (i % 2 ? 0 : i / 2 + 1), "element %d: %d", i, data[i]);
  }
}
