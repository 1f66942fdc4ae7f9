// MPIX_Pbuf_prepare and MPIX_Pbuf_prepareall: the proposal of MPI Forum issue 302, looked up by
// dlsym. An MPI that lacks them skips the cases.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"

enum { kTag = 71, kPartitions = 8, kSmall = 64, kLarge = 64 << 10, kStarted = 1, kNext = 2 };

typedef int Prepare(MPI_Request request);
typedef int PrepareAll(int count, const MPI_Request array_of_requests[]);
static Prepare* prepare;
static PrepareAll* prepareall;

/// @return false: this MPI has no such calls, and the case is skipped
static bool found(void) {
  *(void**)&prepare = dlsym(RTLD_DEFAULT, "MPIX_Pbuf_prepare");
  *(void**)&prepareall = dlsym(RTLD_DEFAULT, "MPIX_Pbuf_prepareall");
  if (prepare == NULL || prepareall == NULL) {
    case_skip("no MPIX_Pbuf_prepare");
    return false;
  }
  return true;
}

static MPI_Request pair_of(void* data, size_t part, int tag) {
  return my_rank == 0 ? psend(data, kPartitions, (MPI_Count)part, MPI_BYTE, 1, tag, comm)
                      : precv(data, kPartitions, (MPI_Count)part, MPI_BYTE, 0, tag, comm);
}

/// @param is_late  the receiver starts while the sender waits; else before the sender does
static void rounds(size_t part, int count, bool is_late) {
  const size_t bytes = kPartitions * part;
  unsigned char* const data = guarded(bytes);
  MPI_Request request = pair_of(data, part, kTag);
  for (int round = 1; round <= count; ++round) {
    if (my_rank == 0) {
      fill(data, bytes, 1, (uint64_t)round);
      if (!is_late) REQUIRE(await(kStarted, round, 20), "the receiver does not start");
      start(&request);
      post(kNext, round);
      MUST(prepare(request));
      EXPECT(peek(kStarted) >= round, "round %d: ready before the receiver's start", round);
      MUST(prepare(request));
      ready_all(request, kPartitions);
      MUST(prepare(request));
    } else {
      if (is_late) {
        REQUIRE(await(kNext, round, 20), "the sender does not start");
        pause_s(0.02);
      }
      post(kStarted, round);
      start(&request);
    }
    complete(&request);
    EXPECT_STREAM(data, bytes, 1, (uint64_t)round);
  }
  drop(&request);
  release_guarded(data);
}

CASE(B1_prepare_waits_for_the_receivers_start, .ranks = 2) {
  if (!found()) return;
  rounds(kSmall, 5, true);
}
CASE(B1_prepare_waits_for_a_large_buffer, .ranks = 2) {
  if (!found()) return;
  rounds(kLarge, 5, true);
}
CASE(B1_prepare_after_the_receivers_start, .ranks = 2) {
  if (!found()) return;
  rounds(kSmall, 20, false);
}
CASE(B1_prepare_of_a_large_started_buffer, .ranks = 2) {
  if (!found()) return;
  rounds(kLarge, 20, false);
}

typedef struct Shared {
  MPI_Request request;
  int round;
} Shared;

static void prepare_and_mark(int thread, void* argument) {
  Shared* const shared = argument;
  MUST(prepare(shared->request));
  EXPECT(peek(kStarted) >= shared->round, "ready before the receiver's start");
  ready(shared->request, 2 * thread);
  MUST(prepareall(1, &shared->request));
  ready(shared->request, 2 * thread + 1);
}

CASE(B1_prepare_from_several_threads, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  if (!found()) return;
  for (size_t part = kSmall; part <= kLarge; part *= kLarge / kSmall) {
    const size_t bytes = kPartitions * part;
    unsigned char* const data = guarded(bytes);
    Shared shared = {.request = pair_of(data, part, kTag)};
    const int first = part == kSmall ? 1 : 21;
    for (int round = first; round < first + 20; ++round) {
      if (my_rank == 0) {
        fill(data, bytes, 1, (uint64_t)round);
        shared.round = round;
        start(&shared.request);
        post(kNext, round);
        in_threads(kPartitions / 2, prepare_and_mark, &shared);
      } else {
        if (round % 2 == 0) REQUIRE(await(kNext, round, 20), "the sender does not start");
        post(kStarted, round);
        start(&shared.request);
      }
      complete(&shared.request);
      EXPECT_STREAM(data, bytes, 1, (uint64_t)round);
    }
    drop(&shared.request);
    release_guarded(data);
  }
}

CASE(B1_prepareall_waits_for_each, .ranks = 2) {
  if (!found()) return;
  enum { kRequests = 5 };
  unsigned char data[kRequests][kPartitions * kSmall];
  MPI_Request requests[kRequests];
  for (int i = 0; i < kRequests; ++i) requests[i] = pair_of(data[i], kSmall, kTag + i);
  MUST(prepareall(0, NULL));
  if (my_rank == 0) {
    for (int i = 0; i < kRequests; ++i) fill(data[i], sizeof data[i], 1, (uint64_t)i);
    MUST(MPI_Startall(kRequests, requests));
    MUST(prepareall(kRequests, requests));
    EXPECT(peek(kStarted) == kRequests, "ready before %d of %d starts", peek(kStarted), kRequests);
    for (int i = 0; i < kRequests; ++i) ready_all(requests[i], kPartitions);
  } else {
    for (int i = kRequests - 1; i >= 0; --i) {
      pause_s(0.01);
      post(kStarted, kRequests - i);
      start(&requests[i]);
    }
    MUST(prepareall(kRequests, requests));
  }
  for (int i = 0; i < kRequests; ++i) {
    complete(&requests[i]);
    EXPECT_STREAM(data[i], sizeof data[i], 1, (uint64_t)i);
    drop(&requests[i]);
  }
}

CASE(B1_prepare_of_a_receive_returns_at_once, .ranks = 2) {
  if (!found()) return;
  unsigned char data[kPartitions * kSmall] = {0};
  MPI_Request request = pair_of(data, kSmall, kTag);
  if (my_rank == 1) {
    start(&request);
    MUST(prepare(request));
    post(kNext, 1);
  } else {
    REQUIRE(await(kNext, 1, 20), "it waits for the sender");
    start(&request);
    ready_all(request, kPartitions);
  }
  complete(&request);
  drop(&request);
}

CASE(B1_prepare_of_other_requests_succeeds, .ranks = 2) {
  if (!found()) return;
  int out = 1, in = 0;
  MPI_Request natives[2], nowhere[2];
  MUST(MPI_Send_init(&out, 1, MPI_INT, my_peer, kTag, comm, &natives[0]));
  MUST(MPI_Recv_init(&in, 1, MPI_INT, my_peer, kTag, comm, &natives[1]));
  MUST(prepareall(2, natives));
  MUST(MPI_Startall(2, natives));
  MUST(prepare(natives[0]));
  MUST(prepareall(2, natives));
  MUST(MPI_Waitall(2, natives, MPI_STATUSES_IGNORE));
  for (int i = 0; i < 2; ++i) drop(&natives[i]);
  nowhere[0] = psend(&out, 1, 1, MPI_INT, MPI_PROC_NULL, kTag, comm);
  nowhere[1] = precv(&in, 1, 1, MPI_INT, MPI_PROC_NULL, kTag, comm);
  MUST(MPI_Startall(2, nowhere));
  MUST(prepareall(2, nowhere));
  ready(nowhere[0], 0);
  for (int i = 0; i < 2; ++i) {
    complete(&nowhere[i]);
    drop(&nowhere[i]);
  }
}

CASE(B1_prepare_drives_the_MPI, .ranks = 2) {
  if (!found()) return;
  enum { kBytes = 4 << 20 };
  unsigned char* const big = guarded(kBytes);
  unsigned char data[kPartitions * kSmall] = {0};
  MPI_Request request = pair_of(data, kSmall, kTag);
  if (my_rank == 0) {  // the receiver starts only after a message that takes this process's calls
    MPI_Request plain;
    fill(big, kBytes, 2, 1);
    MUST(MPI_Isend(big, kBytes, MPI_BYTE, 1, kTag + 1, comm, &plain));
    start(&request);
    MUST(prepare(request));
    ready_all(request, kPartitions);
    MUST(MPI_Wait(&plain, MPI_STATUS_IGNORE));
  } else {
    MUST(MPI_Recv(big, kBytes, MPI_BYTE, 0, kTag + 1, comm, MPI_STATUS_IGNORE));
    EXPECT_STREAM(big, kBytes, 2, 1);
    start(&request);
  }
  complete(&request);
  drop(&request);
  release_guarded(big);
}

CASE(B2_prepare_of_an_inactive_request, .ranks = 2) {
  if (!found()) return;
  unsigned char data[kPartitions * kSmall] = {0};
  MPI_Request requests[2] = {pair_of(data, kSmall, kTag), MPI_REQUEST_NULL};
  for (int round = 0; round < 2; ++round) {  // never started, then after completion
    EXPECT_ERROR(prepare(requests[0]), MPI_ERR_REQUEST);
    EXPECT_ERROR(prepareall(1, requests), MPI_ERR_REQUEST);
    start(&requests[0]);
    EXPECT_ERROR(prepareall(2, requests), MPI_ERR_REQUEST);
    if (my_rank == 0) ready_all(requests[0], kPartitions);
    complete(&requests[0]);
  }
  drop(&requests[0]);
  EXPECT_ERROR(prepare(MPI_REQUEST_NULL), MPI_ERR_REQUEST);
  EXPECT_ERROR(prepareall(1, null_pointer), MPI_ERR_ARG);
  EXPECT_ERROR(prepareall(-1, requests), MPI_ERR_COUNT);
}

CASE(B2_prepare_ends_with_an_error_when_the_receive_is_freed, .ranks = 2) {
  if (!found()) return;
  unsigned char data[kPartitions * kSmall] = {0};
  MPI_Request request = pair_of(data, kSmall, kTag);
  start(&request);
  if (my_rank == 0) ready_all(request, kPartitions);
  complete(&request);
  if (my_rank == 0) {
    start(&request);
    post(kNext, 1);
    EXPECT_ERROR(prepare(request), MPI_ERR_LASTCODE);
    EXPECT_ERROR(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_LASTCODE);
  } else {
    REQUIRE(await(kNext, 1, 20), "the sender does not start");
  }
  drop(&request);
}
