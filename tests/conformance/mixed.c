// Arrays with requests of every kind (C8).
#include <stdlib.h>
#include <string.h>

#include "case.h"

enum { kTag = 37, kPartitions = 4 };

/// Eight requests: partitioned (2 pairs), plain, persistent, inactive, null; in both processes at
/// the same places.
typedef struct Mix {
  MPI_Request request[8];
  int part[2][kPartitions];
  int plain[2], persistent[2], unused;
} Mix;
enum { kMix = 8, kActive = 6 };

static void mix_init(Mix* m) {
  memset(m, 0, sizeof(*m));
  for (int i = 0; i < kMix; ++i) m->request[i] = MPI_REQUEST_NULL;
  m->request[1] = my_rank == 0 ? psend(m->part[0], kPartitions, 1, MPI_INT, 1, kTag, comm)
                               : precv(m->part[0], kPartitions, 1, MPI_INT, 0, kTag, comm);
  m->request[6] = my_rank == 1 ? psend(m->part[1], kPartitions, 1, MPI_INT, 0, kTag, comm)
                               : precv(m->part[1], kPartitions, 1, MPI_INT, 1, kTag, comm);
  MUST(MPI_Send_init(&m->persistent[0], 1, MPI_INT, my_peer, 2, comm, &m->request[3]));
  MUST(MPI_Recv_init(&m->persistent[1], 1, MPI_INT, my_peer, 2, comm, &m->request[5]));
  m->request[4] = precv(&m->unused, 1, 1, MPI_INT, my_peer, 999, comm);  // never started
}

static void mix_start(Mix* m, int round) {
  m->plain[0] = m->persistent[0] = round;
  m->plain[1] = m->persistent[1] = 0;
  MUST(MPI_Irecv(&m->plain[1], 1, MPI_INT, my_peer, 1, comm, &m->request[7]));
  MUST(MPI_Isend(&m->plain[0], 1, MPI_INT, my_peer, 1, comm, &m->request[2]));
  MPI_Request to_start[4] = {m->request[3], m->request[1], m->request[5], m->request[6]};
  MUST(MPI_Startall(4, to_start));
}

static void mix_ready(Mix* m, int round) {
  const int mine = my_rank == 0 ? 0 : 1;
  for (int i = 0; i < kPartitions; ++i) m->part[mine][i] = 10 * round + i;
  ready_all(m->request[my_rank == 0 ? 1 : 6], kPartitions);
}

static void mix_check(const Mix* m, int round) {
  for (int p = 0; p < 2; ++p) {
    for (int i = 0; i < kPartitions; ++i) {
      EXPECT_DATA(m->part[p][i] == 10 * round + i, "round %d, partition %d: found %d", round, i,
                  m->part[p][i]);
    }
  }
  EXPECT_DATA(m->plain[1] == round && m->persistent[1] == round,
              "round %d: plain %d, persistent %d", round, m->plain[1], m->persistent[1]);
  EXPECT(m->request[2] == MPI_REQUEST_NULL && m->request[7] == MPI_REQUEST_NULL,
         "plain requests were not set to MPI_REQUEST_NULL");
  EXPECT(m->request[1] != MPI_REQUEST_NULL && m->request[3] != MPI_REQUEST_NULL,
         "persistent requests were set to MPI_REQUEST_NULL");
}

static void mix_free(Mix* m) {
  for (int i = 0; i < kMix; ++i) {
    if (m->request[i] != MPI_REQUEST_NULL) drop(&m->request[i]);
  }
}

/// @param complete_round  starts and completes the requests
static void mix_rounds(int rounds, void (*complete_round)(Mix* m, int round)) {
  Mix m;
  mix_init(&m);
  for (int round = 1; round <= rounds; ++round) {
    complete_round(&m, round);
    mix_check(&m, round);
  }
  mix_free(&m);
}

static void wait_for_all(Mix* m, int round) {
  MPI_Status status[kMix];
  mix_start(m, round);
  mix_ready(m, round);
  MUST(MPI_Waitall(kMix, m->request, round % 2 ? status : MPI_STATUSES_IGNORE));
}

CASE(C8_waitall, .ranks = 2, .traits = kEveryLevel) { mix_rounds(5, wait_for_all); }

static void test_all(Mix* m, int round) {
  MPI_Status status[kMix];
  mix_start(m, round);
  int flag = 0;
  const double end = now_s() + 0.005;
  while (now_s() < end) {  // plain requests complete meanwhile, ours can't
    MUST(MPI_Testall(kMix, m->request, &flag, status));
    EXPECT(!flag, "round %d: complete without pready", round);
    EXPECT(m->request[2] != MPI_REQUEST_NULL && m->request[7] != MPI_REQUEST_NULL,
           "a plain request was taken while the flag is false");
  }
  MPI_Barrier(world);
  mix_ready(m, round);
  while (!flag) MUST(MPI_Testall(kMix, m->request, &flag, status));
}

CASE(C8_testall_is_all_or_nothing, .ranks = 2) { mix_rounds(5, test_all); }

/// Takes requests one by one until there is no active one left.
static void one_by_one(bool wait) {
  Mix m;
  mix_init(&m);
  for (int round = 1; round <= 5; ++round) {
    int seen[kMix] = {0}, index = -1, flag = 0;
    MPI_Status status;
    mix_start(&m, round);
    mix_ready(&m, round);
    for (int taken = 0; taken < kActive;) {
      flag = 1;
      if (wait) {
        MUST(MPI_Waitany(kMix, m.request, &index, &status));
      } else {
        MUST(MPI_Testany(kMix, m.request, &index, &flag, &status));
      }
      if (!flag) continue;
      REQUIRE(index >= 0 && index < kMix, "round %d: index %d after %d requests", round, index,
              taken);
      EXPECT(!seen[index] && index != 0 && index != 4, "round %d: request %d again", round, index);
      seen[index] = 1;
      ++taken;
      if (index == (my_rank == 0 ? 6 : 1)) {
        EXPECT(status.MPI_SOURCE == my_peer && status.MPI_TAG == kTag, "source %d, tag %d",
               status.MPI_SOURCE, status.MPI_TAG);
      }
    }
    if (wait) {
      MUST(MPI_Waitany(kMix, m.request, &index, &status));
    } else {
      MUST(MPI_Testany(kMix, m.request, &index, &flag, &status));
      EXPECT(flag, "MPI_Testany without active requests says false");
    }
    EXPECT(index == MPI_UNDEFINED, "without active requests: index %d", index);
    mix_check(&m, round);
  }
  mix_free(&m);
}

CASE(C8_waitany, .ranks = 2) { one_by_one(true); }
CASE(C8_testany, .ranks = 2) { one_by_one(false); }

static void some_by_some(bool wait) {
  Mix m;
  mix_init(&m);
  for (int round = 1; round <= 5; ++round) {
    int seen[kMix] = {0}, indices[kMix], done = 0;
    MPI_Status status[kMix];
    mix_start(&m, round);
    mix_ready(&m, round);
    for (int taken = 0; taken < kActive;) {
      if (wait) {
        MUST(MPI_Waitsome(kMix, m.request, &done, indices, status));
        REQUIRE(done >= 1, "round %d: outcount %d after %d requests", round, done, taken);
      } else {
        MUST(MPI_Testsome(kMix, m.request, &done, indices, status));
        REQUIRE(done != MPI_UNDEFINED, "round %d: undefined after %d requests", round, taken);
      }
      for (int i = 0; i < done; ++i, ++taken) {
        REQUIRE(indices[i] >= 0 && indices[i] < kMix, "index %d", indices[i]);
        EXPECT(!seen[indices[i]], "round %d: request %d again", round, indices[i]);
        seen[indices[i]] = 1;
        if (indices[i] == (my_rank == 0 ? 6 : 1)) {
          EXPECT(status[i].MPI_SOURCE == my_peer, "source %d", status[i].MPI_SOURCE);
        }
      }
    }
    if (wait) {
      MUST(MPI_Waitsome(kMix, m.request, &done, indices, status));
    } else {
      MUST(MPI_Testsome(kMix, m.request, &done, indices, status));
    }
    EXPECT(done == MPI_UNDEFINED, "without active requests: outcount %d", done);
    mix_check(&m, round);
  }
  mix_free(&m);
}

CASE(C8_waitsome, .ranks = 2) { some_by_some(true); }
CASE(C8_testsome, .ranks = 2) { some_by_some(false); }

static void wait_for_ours(Mix* m, int round) {
  mix_start(m, round);
  // All but ours complete first; then only ours are left and the peer marks them late.
  MPI_Request plain[4] = {m->request[2], m->request[7], m->request[3], m->request[5]};
  MUST(MPI_Waitall(4, plain, MPI_STATUSES_IGNORE));
  m->request[2] = m->request[7] = MPI_REQUEST_NULL;
  int index = -1;
  if (my_rank == 0) {
    await(0, round, 5);
    pause_s(0.01);
    mix_ready(m, round);
  } else {
    mix_ready(m, round);
    post(0, round);
  }
  for (int taken = 0; taken < 2; ++taken) {
    MUST(MPI_Waitany(kMix, m->request, &index, MPI_STATUS_IGNORE));
    EXPECT(index == 1 || index == 6, "index %d", index);
  }
}

CASE(C8_waitany_blocks_until_one_is_complete, .ranks = 2) { mix_rounds(3, wait_for_ours); }

CASE(C8_native_waits_ignore_idle_partitioned_requests, .ranks = 2) {
  Mix m;
  mix_init(&m);
  for (int round = 1; round <= 3; ++round) {
    int value = round, got = 0, index = -1;
    MPI_Request request[4] = {m.request[1], MPI_REQUEST_NULL, m.request[6], MPI_REQUEST_NULL};
    MUST(MPI_Irecv(&got, 1, MPI_INT, my_peer, 7, comm, &request[1]));
    MUST(MPI_Isend(&value, 1, MPI_INT, my_peer, 7, comm, &request[3]));
    for (int taken = 0; taken < 2; ++taken) {
      MUST(MPI_Waitany(4, request, &index, MPI_STATUS_IGNORE));
      EXPECT(index == 1 || index == 3, "index %d", index);
    }
    EXPECT_DATA(got == round, "expected %d, found %d", round, got);
  }
  mix_free(&m);
}

CASE(C8_arrays_of_200, .ranks = 2) {
  enum { kPairs = 100, kRequests = 2 * kPairs, kRounds = 10 };
  static int part[kPairs][2];
  static int plain[kPairs];
  static MPI_Request request[kRequests], ours[kPairs];
  for (int i = 0; i < kPairs; ++i) {
    ours[i] = my_rank == 0 ? psend(part[i], 2, 1, MPI_INT, 1, i, comm)
                           : precv(part[i], 2, 1, MPI_INT, 0, i, comm);
  }
  for (int round = 1; round <= kRounds; ++round) {
    MUST(MPI_Startall(kPairs, ours));
    for (int i = 0; i < kPairs; ++i) {
      request[2 * i] = ours[i];
      if (my_rank == 0) {
        plain[i] = round + i;
        part[i][0] = round;
        part[i][1] = i;
        ready_all(ours[i], 2);
        MUST(MPI_Isend(&plain[i], 1, MPI_INT, 1, i, comm, &request[2 * i + 1]));
      } else {
        MUST(MPI_Irecv(&plain[i], 1, MPI_INT, 0, i, comm, &request[2 * i + 1]));
      }
    }
    MUST(MPI_Waitall(kRequests, request, MPI_STATUSES_IGNORE));
    for (int i = 0; i < kPairs; ++i) {
      EXPECT_DATA(part[i][0] == round && part[i][1] == i && plain[i] == round + i,
                  "round %d, pair %d: found %d, %d, %d", round, i, part[i][0], part[i][1],
                  plain[i]);
    }
  }
  for (int i = 0; i < kPairs; ++i) drop(&ours[i]);
}

static int grequest_query(void* state, MPI_Status* status) {
  (void)state;
  MPI_Status_set_elements(status, MPI_INT, 0);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
static int grequest_free(void* state) {
  (void)state;
  return MPI_SUCCESS;
}
static int grequest_cancel(void* state, int complete_already) {
  (void)state;
  (void)complete_already;
  return MPI_SUCCESS;
}

CASE(C8_with_generalized_and_collective_requests, .ranks = 2) {
  int part[kPartitions] = {0}, sum = 0, one = 1;
  MPI_Request request[4];
  request[0] = my_rank == 0 ? psend(part, kPartitions, 1, MPI_INT, 1, kTag, comm)
                            : precv(part, kPartitions, 1, MPI_INT, 0, kTag, comm);
  for (int round = 1; round <= 3; ++round) {
    MUST(MPI_Grequest_start(grequest_query, grequest_free, grequest_cancel, NULL, &request[1]));
    MUST(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request[2]));
    MUST(MPI_Ibarrier(comm, &request[3]));
    start(&request[0]);
    if (my_rank == 0) {
      for (int i = 0; i < kPartitions; ++i) part[i] = round;
      ready_all(request[0], kPartitions);
    }
    MUST(MPI_Grequest_complete(request[1]));
    MUST(MPI_Waitall(4, request, MPI_STATUSES_IGNORE));
    EXPECT_DATA(part[kPartitions - 1] == round && sum == 2, "round %d: part %d, sum %d", round,
                part[kPartitions - 1], sum);
  }
  drop(&request[0]);
}
