// Pready, Pready_range, Pready_list.
#include <stdlib.h>
#include <string.h>

#include "case.h"

enum { kTag = 13, kPartitions = 8 };

static MPI_Request pair_of(int* data) { return int_pair(data, kPartitions, kTag); }

static void expect_round(const int* data, int round) { expect_ints(data, kPartitions, round); }

/// Four rounds. @param mark  the sender's marks of all partitions
static void four_rounds(void (*mark)(MPI_Request* request, int* data, int round)) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  for (int round = 1; round <= 4; ++round) {
    start(&request);
    if (my_rank == 0) mark(&request, data, round);
    complete(&request);
    expect_round(data, round);
  }
  drop(&request);
}

/// One correct round: after an erroneous call nothing may be harmed.
static void one_round(MPI_Request* request, int* data, int round) {
  start(request);
  if (my_rank == 0) {
    for (int i = 0; i < kPartitions; ++i) data[i] = 100 * round + i;
    ready_all(*request, kPartitions);
  }
  complete(request);
  for (int i = 0; i < kPartitions; ++i) {
    EXPECT_DATA(data[i] == 100 * round + i, "round %d, partition %d: found %d", round, i, data[i]);
  }
}

CASE(R1_pready_of_an_inactive_request, .ranks = 2) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  for (int round = 1; round <= 2; ++round) {  // never started, then after completion
    if (my_rank == 0) {
      EXPECT_ERROR(MPI_Pready(0, request), MPI_ERR_REQUEST);
      EXPECT_ERROR(MPI_Pready_range(0, 3, request), MPI_ERR_REQUEST);
      EXPECT_ERROR(MPI_Pready_list(2, (int[]){0, 1}, request), MPI_ERR_REQUEST);
    }
    one_round(&request, data, round);
  }
  drop(&request);
}

CASE(R1_pready_of_a_receive, .ranks = 2) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  start(&request);
  if (my_rank == 1) {
    EXPECT_ERROR(MPI_Pready(0, request), MPI_ERR_REQUEST);
    EXPECT_ERROR(MPI_Pready_range(0, 1, request), MPI_ERR_REQUEST);
    EXPECT_ERROR(MPI_Pready_list(1, (int[]){0}, request), MPI_ERR_REQUEST);
  } else {
    for (int i = 0; i < kPartitions; ++i) data[i] = i;
    ready_all(request, kPartitions);
  }
  complete(&request);
  one_round(&request, data, 2);
  drop(&request);
}

CASE(R1_pready_of_null, .ranks = 2) {
  EXPECT_ERROR(MPI_Pready(0, MPI_REQUEST_NULL), MPI_ERR_REQUEST);
  EXPECT_ERROR(MPI_Pready_range(0, 0, MPI_REQUEST_NULL), MPI_ERR_REQUEST);
  EXPECT_ERROR(MPI_Pready_list(1, (int[]){0}, MPI_REQUEST_NULL), MPI_ERR_REQUEST);
}

CASE(R1_pready_of_another_kind, .ranks = 2) {
  int value = 5, data[kPartitions] = {0};
  MPI_Request other, request = pair_of(data);
  MUST(MPI_Send_init(&value, 1, MPI_INT, my_peer, kTag, comm, &other));
  EXPECT_ERROR(MPI_Pready(0, other), MPI_ERR_REQUEST);
  one_round(&request, data, 1);
  MUST(MPI_Request_free(&other));
  drop(&request);
}

CASE(R2_partition_out_of_range, .ranks = 2) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  start(&request);
  if (my_rank == 0) {
    EXPECT_ERROR(MPI_Pready(-1, request), MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Pready(kPartitions, request), MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Pready(1 << 30, request), MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Pready_range(-1, 2, request), MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Pready_range(5, kPartitions, request), MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Pready_list(2, (int[]){kPartitions, -1}, request), MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Pready_list(2, (int[]){0, kPartitions}, request), MPI_ERR_ARG);
    EXPECT(!tested(&request), "erroneous calls completed the request");
    for (int i = 0; i < kPartitions; ++i) data[i] = i;
    ready_all(request, kPartitions);
  }
  complete(&request);
  expect_round(data, 0);
  one_round(&request, data, 2);
  drop(&request);
}

/// `mark` marks partition 2 again, and perhaps 3 as well: the other marks of an erroneous call are
/// open.
static void twice(int (*mark)(MPI_Request)) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  for (int round = 1; round <= 2; ++round) {
    start(&request);
    if (my_rank == 0) {
      for (int i = 0; i < kPartitions; ++i) data[i] = 10 * i + round;
      ready(request, 2);
      EXPECT_ERROR(mark(request), MPI_ERR_ARG, MPI_ERR_REQUEST);
      EXPECT(!tested(&request), "it completed with partitions that are not ready");
      for (int i = 0; i < kPartitions; ++i) {
        if (i == 3) {
          MPI_Pready(i, request);
        } else if (i != 2) {
          ready(request, i);
        }
      }
    }
    step("waiting after a double pready");
    complete(&request);
    for (int i = 0; i < kPartitions; ++i) {
      const int expected = 10 * i + round;
      EXPECT_DATA(data[i] == expected, "partition %d: expected %d, found %d", i, expected, data[i]);
    }
  }
  drop(&request);
}

static int mark_one(MPI_Request request) { return MPI_Pready(2, request); }
static int mark_range(MPI_Request request) { return MPI_Pready_range(2, 3, request); }
static int mark_list(MPI_Request request) { return MPI_Pready_list(1, (int[]){2}, request); }

CASE(R3_double_pready, .ranks = 2) { twice(mark_one); }
CASE(R3_double_pready_in_a_range, .ranks = 2) { twice(mark_range); }
CASE(R3_double_pready_in_a_list, .ranks = 2) { twice(mark_list); }

CASE(R3_duplicate_inside_a_list, .ranks = 2) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  start(&request);
  if (my_rank == 0) {
    for (int i = 0; i < kPartitions; ++i) data[i] = i;
    EXPECT_ERROR(MPI_Pready_list(2, (int[]){4, 4}, request), MPI_ERR_ARG, MPI_ERR_REQUEST);
    EXPECT(!tested(&request), "it completed with partitions that are not ready");
    for (int i = 0; i < kPartitions; ++i) MPI_Pready(i, request);  // 4 may be marked by now
  }
  step("waiting after a duplicate inside a list");
  complete(&request);
  expect_round(data, 0);
  drop(&request);
}

static void mark_ranges(MPI_Request* request, int* data, int round) {
  write_ints(data, kPartitions, round);
  MUST(MPI_Pready_range(5, 7, *request));
  MUST(MPI_Pready_range(0, 0, *request));
  EXPECT(!tested(request), "round %d: complete with partitions 1 to 4 not ready", round);
  MUST(MPI_Pready_range(1, 3, *request));
  EXPECT(!tested(request), "round %d: complete with partition 4 not ready", round);
  MUST(MPI_Pready_range(4, 4, *request));
}

static void mark_lists(MPI_Request* request, int* data, int round) {
  write_ints(data, kPartitions, round);
  MUST(MPI_Pready_list(3, (int[]){6, 0, 3}, *request));
  MUST(MPI_Pready_list(0, (int[]){0}, *request));
  MUST(MPI_Pready_list(4, (int[]){7, 5, 2, 1}, *request));
  EXPECT(!tested(request), "round %d: complete with partition 4 not ready", round);
  MUST(MPI_Pready_list(1, (int[]){4}, *request));
}

CASE(R4_ranges_are_inclusive, .ranks = 2, .traits = kSessions) { four_rounds(mark_ranges); }
CASE(R5_lists_in_any_order, .ranks = 2) { four_rounds(mark_lists); }

CASE(R5_negative_length, .ranks = 2) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  start(&request);
  if (my_rank == 0) {
    EXPECT_ERROR(MPI_Pready_list(-1, (int[]){0}, request), MPI_ERR_ARG, MPI_ERR_COUNT);
    for (int i = 0; i < kPartitions; ++i) data[i] = i;
    ready_all(request, kPartitions);
  }
  complete(&request);
  expect_round(data, 0);
  drop(&request);
}

static void mark_each(MPI_Request* request, int* data, int round) {
  for (int i = 0; i < kPartitions; ++i) {
    EXPECT(!tested(request), "round %d: complete after %d of %d pready", round, i, kPartitions);
    data[i] = 10 * round + i;
    ready(*request, i);
  }
}

CASE(R6_every_partition_in_every_round, .ranks = 2) { four_rounds(mark_each); }

CASE(R7_pready_does_not_wait, .ranks = 2) {
  enum { kParts = 64, kBytes = 65536 };
  unsigned char* data = guarded((size_t)kParts * kBytes);
  MPI_Request request = my_rank == 0 ? psend(data, kParts, kBytes, MPI_BYTE, 1, kTag, comm)
                                     : precv(data, kParts, kBytes, MPI_BYTE, 0, kTag, comm);
  for (int round = 1; round <= 2; ++round) {
    if (my_rank == 0) {
      fill(data, (size_t)kParts * kBytes, 1, (uint64_t)round);
      start(&request);
      const double begin = now_s();
      for (int i = 0; i < kParts; ++i) ready(request, i);
      const double took = now_s() - begin;
      EXPECT(took < 0.3, "round %d: %d pready took %.3f s with a late receiver", round, kParts,
             took);
      complete(&request);
    } else {
      pause_s(0.4);
      start(&request);
      complete(&request);
      EXPECT_STREAM(data, (size_t)kParts * kBytes, 1, (uint64_t)round);
    }
  }
  drop(&request);
  release_guarded(data);
}

CASE(R8_any_order_of_pready, .ranks = 2) {
  enum { kParts = 32, kBytes = 320, kRounds = 50 };
  unsigned char data[kParts * kBytes];
  uint64_t seed = 8;
  MPI_Request request = my_rank == 0
                            ? psend(data, kParts, kBytes, MPI_BYTE, 1, kTag, comm)
                            : precv(data, 20, kParts * kBytes / 20, MPI_BYTE, 0, kTag, comm);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    int order[kParts];
    for (int i = 0; i < kParts; ++i) order[i] = i;
    for (int i = kParts - 1; i > 0; --i) {
      const int j = random_between(&seed, 0, i), swap = order[i];
      order[i] = order[j];
      order[j] = swap;
    }
    if (my_rank == 0) fill(data, sizeof(data), 1, round);
    start(&request);
    for (int i = 0; i < kParts && my_rank == 0; ++i) ready(request, order[i]);
    complete(&request);
    if (my_rank == 1) EXPECT_STREAM(data, sizeof(data), 1, round);
  }
  drop(&request);
}
