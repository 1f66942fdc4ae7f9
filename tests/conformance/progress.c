// Progress in both directions: ours while the peer sits in native calls or in none, and native
// while this side sits in ours.
#include <stdlib.h>
#include <string.h>

#include "case.h"

enum { kTag = 53, kParts = 4 };

static const size_t kSizes[] = {64, 1 << 16, 1 << 20};
enum { kSizeCount = 3 };

typedef struct Channel {
  size_t bytes;
  unsigned char* data;
  MPI_Request request;
} Channel;

static Channel channel_open(size_t bytes, int sender) {
  Channel c = {.bytes = bytes, .data = guarded(bytes)};
  const MPI_Count part = (MPI_Count)(bytes / kParts);
  c.request = my_rank == sender ? psend(c.data, kParts, part, MPI_BYTE, my_peer, kTag, comm)
                                : precv(c.data, kParts, part, MPI_BYTE, my_peer, kTag, comm);
  return c;
}

static void channel_close(Channel* c) {
  drop(&c->request);
  release_guarded(c->data);
}

typedef void (*Sit)(int round);

/// The receiver starts, then sits in `sit` until the sender's Wait is over; only then it polls.
static void receiver_sits(Sit sit) {
  int round = 0;
  for (int s = 0; s < kSizeCount; ++s) {
    Channel c = channel_open(kSizes[s], 0);
    for (int i = 0; i < 3; ++i) {
      ++round;
      if (my_rank == 0) fill(c.data, c.bytes, 1, (uint64_t)round);
      start(&c.request);
      if (my_rank == 0) {
        if (i == 1) pause_s(0.005);
        ready_all(c.request, kParts);
        step("waiting for a receiver that sits in a native call");
        complete(&c.request);
      }
      sit(round);
      if (my_rank == 1) {
        complete(&c.request);
        EXPECT_STREAM(c.data, c.bytes, 1, (uint64_t)round);
      }
    }
    channel_close(&c);
  }
}

static void in_recv(int round) {
  int value = round;
  if (my_rank == 0) {
    MUST(MPI_Send(&value, 1, MPI_INT, 1, 1, comm));
  } else {
    MUST(MPI_Recv(&value, 1, MPI_INT, 0, 1, comm, MPI_STATUS_IGNORE));
  }
}
static void in_barrier(int round) {
  (void)round;
  MUST(MPI_Barrier(comm));
}
static void in_wait(int round) {
  int value = round;
  MPI_Request request;
  if (my_rank == 0) {
    MUST(MPI_Isend(&value, 1, MPI_INT, 1, 1, comm, &request));
  } else {
    MUST(MPI_Irecv(&value, 1, MPI_INT, 0, 1, comm, &request));
  }
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
}
static void in_probe(int round) {
  int value = round;
  if (my_rank == 1) MUST(MPI_Probe(0, 1, comm, MPI_STATUS_IGNORE));
  in_recv(value);
}
static void in_allreduce(int round) {
  int sum = 0;
  MUST(MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, comm));
}
static void in_computation(int round) {
  (void)round;
  if (my_rank == 1) compute_s(0.03);
}

CASE(P4_receiver_sits_in_recv, .ranks = 2, .traits = kEveryLevel) { receiver_sits(in_recv); }
CASE(P4_receiver_sits_in_barrier, .ranks = 2, .traits = kEveryLevel) { receiver_sits(in_barrier); }
CASE(P4_receiver_sits_in_wait, .ranks = 2, .traits = kEveryLevel) { receiver_sits(in_wait); }
CASE(P4_receiver_sits_in_probe, .ranks = 2) { receiver_sits(in_probe); }
CASE(P4_receiver_sits_in_allreduce, .ranks = 2) { receiver_sits(in_allreduce); }
CASE(P4_receiver_computes, .ranks = 2, .traits = kEveryLevel) { receiver_sits(in_computation); }

/// First use of partitioned calls: the handshake itself must not need the receiver in our calls.
CASE(P4_receiver_sits_before_the_first_match, .ranks = 2) {
  Channel c = {0};
  if (my_rank == 1) {
    c = channel_open(4096, 0);
    start(&c.request);
    in_recv(0);
  } else {
    pause_s(0.02);
    c = channel_open(4096, 0);
    fill(c.data, c.bytes, 1, 1);
    start(&c.request);
    ready_all(c.request, kParts);
    complete(&c.request);
    in_recv(0);
  }
  if (my_rank == 1) {
    complete(&c.request);
    EXPECT_STREAM(c.data, c.bytes, 1, 1);
  }
  channel_close(&c);
}

typedef void (*Finish)(MPI_Request*);

static void by_wait(MPI_Request* request) { complete(request); }
static void by_parrived(MPI_Request* request) {
  for (int i = 0; i < kParts; ++i) {
    while (!arrived(*request, i)) {
    }
  }
  complete(request);
}
static void by_testall(MPI_Request* request) {
  int flag = 0;
  while (!flag) MUST(MPI_Testall(1, request, &flag, MPI_STATUSES_IGNORE));
}
static void by_waitany(MPI_Request* request) {
  int index;
  MUST(MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE));
}
static void by_waitsome(MPI_Request* request) {
  int index, done;
  MUST(MPI_Waitsome(1, request, &done, &index, MPI_STATUSES_IGNORE));
}

/// Rank 0 has a large native send open and sits in one of our calls; rank 1 sends its partitions
/// only when it has received.
static void peer_needs_native_progress(Finish finish, bool strided) {
  enum { kDoubles = 1 << 20, kBlock = 8 };
  double* big = malloc(kDoubles * sizeof(double));
  REQUIRE(big != NULL, "no memory");
  MPI_Datatype column;
  MUST(MPI_Type_vector(kDoubles / kBlock / 2, kBlock, 2 * kBlock, MPI_DOUBLE, &column));
  MUST(MPI_Type_commit(&column));
  Channel c = channel_open(1 << 12, 1);
  for (int round = 1; round <= 3; ++round) {
    start(&c.request);
    if (my_rank == 0) {
      MPI_Request native;
      for (int i = 0; i < kDoubles; ++i) big[i] = round + i;
      MUST(MPI_Isend(big, strided ? 1 : kDoubles, strided ? column : MPI_DOUBLE, 1, 2, comm,
                     &native));
      step("sitting in a partitioned call while a native send is open");
      finish(&c.request);
      EXPECT_STREAM(c.data, c.bytes, 1, (uint64_t)round);
      MUST(MPI_Wait(&native, MPI_STATUS_IGNORE));
    } else {
      pause_s(0.005);
      MUST(MPI_Recv(big, strided ? 1 : kDoubles, strided ? column : MPI_DOUBLE, 0, 2, comm,
                    MPI_STATUS_IGNORE));
      EXPECT_DATA(big[0] == round, "the native receive got %g", big[0]);
      fill(c.data, c.bytes, 1, (uint64_t)round);
      ready_all(c.request, kParts);
      complete(&c.request);
    }
  }
  channel_close(&c);
  MUST(MPI_Type_free(&column));
  free(big);
}

CASE(P4_native_progress_in_wait, .ranks = 2, .traits = kEveryLevel) {
  peer_needs_native_progress(by_wait, false);
}
CASE(P4_native_progress_in_wait_strided, .ranks = 2) { peer_needs_native_progress(by_wait, true); }
CASE(P4_native_progress_in_parrived, .ranks = 2, .traits = kEveryLevel) {
  peer_needs_native_progress(by_parrived, false);
}
CASE(P4_native_progress_in_parrived_strided, .ranks = 2) {
  peer_needs_native_progress(by_parrived, true);
}
CASE(P4_native_progress_in_testall, .ranks = 2) { peer_needs_native_progress(by_testall, false); }
CASE(P4_native_progress_in_testall_strided, .ranks = 2) {
  peer_needs_native_progress(by_testall, true);
}
CASE(P4_native_progress_in_waitany, .ranks = 2) { peer_needs_native_progress(by_waitany, false); }
CASE(P4_native_progress_in_waitsome, .ranks = 2) { peer_needs_native_progress(by_waitsome, false); }

static int compare_doubles(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/// The sender is outside MPI from its last Pready until the receiver is done, at most 0.6 s; the
/// receiver starts late.
static void sender_asleep(size_t bytes, int* round) {
  enum { kRounds = 9 };
  Channel c = channel_open(bytes, 0);
  double seconds[kRounds] = {0};
  for (int i = 0; i < kRounds; ++i) {
    ++*round;
    if (my_rank == 0) {
      fill(c.data, c.bytes, 1, (uint64_t)*round);
      start(&c.request);
      ready_all(c.request, kParts);
      post(0, *round);
      await(1, *round, 0.6);
      complete(&c.request);
    } else {
      await(0, *round, 5);
      pause_s(0.005);
      const double begin = now_s();
      start(&c.request);
      complete(&c.request);
      seconds[i] = now_s() - begin;
      post(1, *round);
      EXPECT_STREAM(c.data, c.bytes, 1, (uint64_t)*round);
      EXPECT_PROMPT(seconds[i] < 0.5, "%zu bytes, round %d: complete %.3f s after Start", bytes,
                    i + 1, seconds[i]);
    }
    int failed = case_failed();
    MPI_Bcast(&failed, 1, MPI_INT, 1, world);
    if (failed) break;
  }
  qsort(seconds, kRounds, sizeof(double), compare_doubles);
  EXPECT_PROMPT(my_rank == 0 || seconds[kRounds / 2] < 5e-3,
                "%zu bytes: complete %.4f s after Start (median)", bytes, seconds[kRounds / 2]);
  channel_close(&c);
}

CASE(M_sender_asleep_after_pready, .ranks = 2, .traits = kEveryLevel) {
  static const size_t kLengths[] = {8, 1024, 65536, 1 << 20};
  int round = 0;
  for (int i = 0; i < 4; ++i) sender_asleep(kLengths[i], &round);
}

CASE(M_peer_initialises_one_second_later, .ranks = 2) {
  Channel c;
  if (my_rank == 1) pause_s(1);
  const double begin = now_s();
  c = channel_open(1 << 16, 0);
  if (my_rank == 0) fill(c.data, c.bytes, 1, 1);
  start(&c.request);
  if (my_rank == 0) ready_all(c.request, kParts);
  const double took = now_s() - begin;
  EXPECT(took < 0.4, "init, start and pready took %.3f s", took);
  complete(&c.request);
  if (my_rank == 1) EXPECT_STREAM(c.data, c.bytes, 1, 1);
  channel_close(&c);
}
