// Modes of communication: standard, synchronous, ready, buffered; blocking and nonblocking.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 11 };

static const size_t kSizes[] = {0,     1,      7,       8,       63,     64,    65,
                                255,   1024,   4095,    4096,    8191,   16384, 65535,
                                65536, 131072, 1 << 20, 3000001, 4 << 20};
enum { kSizesCount = sizeof(kSizes) / sizeof(kSizes[0]) };

typedef int (*Send)(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm on);

/// Each size twice: the receive comes first, the send comes first.
static void every_size(Send send) {
  const size_t largest = kSizes[kSizesCount - 1];
  for (int first = 0; first < 2; ++first) {
    for (size_t i = 0; i < kSizesCount; ++i) {
      const size_t bytes = kSizes[i];
      const int round = (int)i + 100 * first;
      if (my_rank == 0) {
        unsigned char* data = memory(largest);
        fill(data, bytes, 3, (uint64_t)round);
        if (first == 1) await(0, round + 1, 5);  // the receive is posted
        MUST(send(data, (int)bytes, MPI_BYTE, 1, kTag, comm));
        memset(data, 0, bytes);  // the buffer is the program's again
        free(data);
      } else {
        unsigned char* data = guarded(bytes);
        if (first == 0) pause_s(0.0005);
        MPI_Request request = irecv(data, (int)bytes, 0, kTag);
        post(0, round + 1);
        MPI_Status status;
        spoil(&status);
        MUST(MPI_Wait(&request, &status));
        EXPECT_STATUS(&status, 0, kTag, (long long)bytes);
        EXPECT_STREAM(data, bytes, 3, (uint64_t)round);
        check_guards(data, bytes);
        release_guarded(data);
      }
    }
  }
}

static int isend_wait(const void* data, int count, MPI_Datatype type, int to, int tag,
                      MPI_Comm on) {
  MPI_Request request;
  const int code = MPI_Isend(data, count, type, to, tag, on, &request);
  return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static int issend_wait(const void* data, int count, MPI_Datatype type, int to, int tag,
                       MPI_Comm on) {
  MPI_Request request;
  const int code = MPI_Issend(data, count, type, to, tag, on, &request);
  return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

CASE(MO1_send_of_every_size, .ranks = 2, .traits = kEveryLevel) { every_size(MPI_Send); }
CASE(MO1_isend_of_every_size, .ranks = 2) { every_size(isend_wait); }
CASE(MO2_ssend_of_every_size, .ranks = 2) { every_size(MPI_Ssend); }
CASE(MO2_issend_of_every_size, .ranks = 2) { every_size(issend_wait); }

static const int kSyncBytes[] = {0, 8, 4096, 1 << 20};

CASE(MO2_issend_is_open_until_the_receive_is_posted, .ranks = 2, .traits = kEveryLevel) {
  char* data = memory(1 << 20);
  memset(data, 7, 1 << 20);
  for (int i = 0; i < 4; ++i) {
    if (my_rank == 0) {
      MPI_Request request = issend(data, kSyncBytes[i], 1, kTag);
      EXPECT(stays_open(&request, 0.01), "Issend of %d bytes is complete without a receive",
             kSyncBytes[i]);
      post(0, i + 1);
      EXPECT(completes(&request, MPI_STATUS_IGNORE, 5), "Issend is incomplete after the receive");
    } else {
      await(0, i + 1, 5);
      MUST(MPI_Recv(data, kSyncBytes[i], MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
    }
  }
  free(data);
}

CASE(MO2_ssend_returns_after_the_receive_was_posted, .ranks = 2) {
  for (int i = 0; i < 4; ++i) {
    char* data = memory((size_t)kSyncBytes[i]);
    memset(data, 7, (size_t)kSyncBytes[i]);
    if (my_rank == 0) {
      MUST(MPI_Ssend(data, kSyncBytes[i], MPI_BYTE, 1, kTag, comm));
      EXPECT(peek(0) >= i + 1, "Ssend of %d bytes returned before its receive", kSyncBytes[i]);
    } else {
      pause_s(0.005);
      post(0, i + 1);
      MUST(MPI_Recv(data, kSyncBytes[i], MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
    }
    free(data);
  }
}

/// A receive that does not match says nothing about the send.
CASE(MO2_another_receive_does_not_complete_issend, .ranks = 2) {
  int value = 5, other = 6;
  if (my_rank == 0) {
    MPI_Request request = issend(&value, 4, 1, kTag);
    send_int(other, 1, kTag + 1);
    await(0, 1, 5);
    EXPECT(stays_open(&request, 0.01), "Issend is complete by the receive of another message");
    post(1, 1);
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  } else {
    EXPECT_DATA(recv_int(0, kTag + 1, MPI_STATUS_IGNORE) == 6, "another message");
    post(0, 1);
    await(1, 1, 5);
    EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == 5, "the synchronous message");
  }
}

/// Probing does not start a receive.
CASE(MO2_probe_does_not_complete_issend, .ranks = 2) {
  int value = 5;
  if (my_rank == 0) {
    MPI_Request request = issend(&value, 4, 1, kTag);
    await(0, 1, 5);
    EXPECT(stays_open(&request, 0.01), "Issend is complete by a probe");
    post(1, 1);
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  } else {
    MPI_Status status;
    MUST(MPI_Probe(0, kTag, comm, &status));
    EXPECT_STATUS(&status, 0, kTag, 4);
    post(0, 1);
    await(1, 1, 5);
    EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == 5, "the message");
  }
}

CASE(MO3_ready_sends_after_the_receive, .ranks = 2) {
  for (size_t i = 0; i < kSizesCount; ++i) {
    const size_t bytes = kSizes[i];
    unsigned char* data = guarded(2 * bytes);
    if (my_rank == 0) {
      MPI_Request request;
      fill(data, 2 * bytes, 4, i);
      await(0, (int)i + 1, 5);
      MUST(MPI_Rsend(data, (int)bytes, MPI_BYTE, 1, kTag, comm));
      MUST(MPI_Irsend(data + bytes, (int)bytes, MPI_BYTE, 1, kTag, comm, &request));
      complete(&request);
    } else {
      MPI_Request both[2] = {irecv(data, (int)bytes, 0, kTag),
                             irecv(data + bytes, (int)bytes, 0, MPI_ANY_TAG)};
      MPI_Status status[2];
      post(0, (int)i + 1);
      MUST(MPI_Waitall(2, both, status));
      EXPECT_STATUS(&status[1], 0, kTag, (long long)bytes);
      EXPECT_STREAM(data, 2 * bytes, 4, i);
      check_guards(data, 2 * bytes);
    }
    release_guarded(data);
  }
}

/// A receive does not choose a mode: messages of all modes match in their order.
CASE(MO4_a_receive_matches_every_mode, .ranks = 2) {
  enum { kRounds = 20, kModes = 6 };
  if (my_rank == 0) {
    char space[kRounds * (64 + MPI_BSEND_OVERHEAD)];
    MUST(MPI_Buffer_attach(space, (int)sizeof(space)));
    for (int round = 0; round < kRounds; ++round) {
      const int v[kModes] = {kModes * round,     kModes * round + 1, kModes * round + 2,
                             kModes * round + 3, kModes * round + 4, kModes * round + 5};
      MPI_Request request[3];
      MUST(MPI_Isend(&v[0], 1, MPI_INT, 1, kTag, comm, &request[0]));
      MUST(MPI_Send(&v[1], 1, MPI_INT, 1, kTag, comm));
      MUST(MPI_Bsend(&v[2], 1, MPI_INT, 1, kTag, comm));
      MUST(MPI_Issend(&v[3], 1, MPI_INT, 1, kTag, comm, &request[1]));
      MUST(MPI_Ibsend(&v[4], 1, MPI_INT, 1, kTag, comm, &request[2]));
      MUST(MPI_Ssend(&v[5], 1, MPI_INT, 1, kTag, comm));
      MUST(MPI_Waitall(3, request, MPI_STATUSES_IGNORE));
    }
    void* back;
    int bytes;
    MUST(MPI_Buffer_detach(&back, &bytes));
  } else {
    for (int i = 0; i < kModes * kRounds; ++i) {
      const int value = recv_int(0, kTag, MPI_STATUS_IGNORE);
      EXPECT_DATA(value == i, "message %d came as number %d", value, i);
    }
  }
}

/// Send may wait for the receiver or not; both orders of a pair of calls of both sides are safe.
CASE(MO5_exchange_by_one_side_first, .ranks = 2) {
  enum { kBytes = 2 << 20 };
  unsigned char *out = guarded(kBytes), *in = guarded(kBytes);
  for (uint64_t round = 0; round < 4; ++round) {
    fill(out, kBytes, (uint64_t)my_rank, round);
    if (my_rank == 0) MUST(MPI_Send(out, kBytes, MPI_BYTE, my_peer, kTag, comm));
    MUST(MPI_Recv(in, kBytes, MPI_BYTE, my_peer, kTag, comm, MPI_STATUS_IGNORE));
    if (my_rank == 1) MUST(MPI_Send(out, kBytes, MPI_BYTE, my_peer, kTag, comm));
    EXPECT_STREAM(in, kBytes, (uint64_t)my_peer, round);
  }
  check_guards(in, kBytes);
  release_guarded(in);
  release_guarded(out);
}
