// Start and Startall.
#include <string.h>

#include "case.h"

enum { kTag = 11 };

CASE(S1_start_before_the_peer_initialises, .ranks = 2) {
  enum { kBytes = 2048 };
  unsigned char data[kBytes];
  for (int first = 0; first < 2; ++first) {  // the rank that starts before the other initializes
    if (my_rank != first) await(first, 1, 5);
    if (my_rank == 0) fill(data, kBytes, 1, (uint64_t)first);
    MPI_Request request = byte_pair(data, kBytes, 2, 4, kTag);
    start(&request);
    if (my_rank == 0) ready_all(request, 2);
    if (my_rank == first) {
      pause_s(0.01);
      post(first, 1);
    }
    complete(&request);
    if (my_rank == 1) EXPECT_STREAM(data, kBytes, 1, (uint64_t)first);
    drop(&request);
  }
}

CASE(S1_startall_of_fresh_requests, .ranks = 2, .traits = kSessions) {
  enum { kRequests = 4, kPartitions = 8, kBytes = 512, kRounds = 3 };
  unsigned char data[kRequests][kBytes];
  MPI_Request request[kRequests];
  for (int i = 0; i < kRequests; ++i) {
    request[i] = my_rank == 0
                     ? psend(data[i], kPartitions, kBytes / kPartitions, MPI_BYTE, 1, i, comm)
                     : precv(data[i], kPartitions, kBytes / kPartitions, MPI_BYTE, 0, i, comm);
  }
  for (uint64_t round = 1; round <= kRounds; ++round) {
    for (int i = 0; i < kRequests && my_rank == 0; ++i) fill(data[i], kBytes, (uint64_t)i, round);
    MUST(MPI_Startall(kRequests, request));
    for (int i = 0; i < kRequests && my_rank == 0; ++i) ready_all(request[i], kPartitions);
    step("waiting for requests that were started by MPI_Startall");
    MUST(MPI_Waitall(kRequests, request, MPI_STATUSES_IGNORE));
    for (int i = 0; i < kRequests && my_rank == 1; ++i) {
      EXPECT_STREAM(data[i], kBytes, (uint64_t)i, round);
    }
  }
  for (int i = 0; i < kRequests; ++i) drop(&request[i]);
}

CASE(S1_startall_of_nothing, .ranks = 2) {
  MPI_Request none = MPI_REQUEST_NULL;
  MUST(MPI_Startall(0, &none));
}

CASE(S1_start_makes_partitions_inactive, .ranks = 2) {
  enum { kRounds = 5, kPartitions = 4 };
  int data[kPartitions] = {0};
  MPI_Request request = int_pair(data, kPartitions, kTag);
  for (int round = 1; round <= kRounds; ++round) {
    start(&request);
    if (my_rank == 1) {
      for (int i = 0; i < kPartitions; ++i) {
        EXPECT(!arrived(request, i), "round %d: partition %d arrived before any pready", round, i);
      }
      post(0, round);
    } else {
      await(0, round, 5);
      write_ints(data, kPartitions, round);
      ready_all(request, kPartitions);
    }
    complete(&request);
    expect_ints(data, kPartitions, round);
  }
  drop(&request);
}

/// The other rank is never held back by us.
static void other_runs_ahead(int late_rank) {
  enum { kRounds = 12, kBytes = 4096 };
  unsigned char data[kBytes];
  MPI_Request request = byte_pair(data, kBytes, 4, 2, kTag);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    if (my_rank == late_rank) pause_s(0.003);
    stream_round(&request, data, kBytes, 4, 1, round);
  }
  drop(&request);
}

CASE(S1_sender_runs_ahead, .ranks = 2) { other_runs_ahead(1); }
CASE(S1_receiver_runs_ahead, .ranks = 2) { other_runs_ahead(0); }

/// Starting an active request fails and leaves its round as it was.
static void second_start_fails(bool all) {
  enum { kRounds = 3 };
  int data[2] = {0, 0};
  MPI_Request request = my_rank == 0 ? psend(data, 2, 1, MPI_INT, 1, kTag, comm)
                                     : precv(data, 2, 1, MPI_INT, 0, kTag, comm);
  for (int round = 1; round <= kRounds; ++round) {
    start(&request);
    if (my_rank == 0) {
      data[0] = round;
      ready(request, 0);
    }
    if (all) {
      EXPECT_ERROR(MPI_Startall(1, &request), MPI_ERR_REQUEST);
    } else {
      EXPECT_ERROR(MPI_Start(&request), MPI_ERR_REQUEST);
    }
    MPI_Barrier(world);
    if (my_rank == 0) {
      data[1] = -round;
      ready(request, 1);
    }
    complete(&request);
    EXPECT_DATA(data[0] == round && data[1] == -round, "round %d: found %d and %d", round, data[0],
                data[1]);
  }
  drop(&request);
}

CASE(S2_start_of_an_active_request, .ranks = 2) { second_start_fails(false); }
CASE(S2_startall_of_an_active_request, .ranks = 2) { second_start_fails(true); }

CASE(S2_startall_starts_nothing_if_one_is_active, .ranks = 2) {
  int data[2] = {my_rank, 7 * my_rank};
  MPI_Request request[2];
  for (int i = 0; i < 2; ++i)
    request[i] = my_rank == 0 ? psend(&data[i], 1, 1, MPI_INT, 1, kTag + i, comm)
                              : precv(&data[i], 1, 1, MPI_INT, 0, kTag + i, comm);
  start(&request[1]);
  EXPECT_ERROR(MPI_Startall(2, request), MPI_ERR_REQUEST);
  start(&request[0]);  // an error if it were active
  for (int i = 0; i < 2 && my_rank == 0; ++i) {
    data[i] = 40 + i;
    ready(request[i], 0);
  }
  MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
  EXPECT_DATA(data[0] == 40 && data[1] == 41, "found %d and %d", data[0], data[1]);
  for (int i = 0; i < 2; ++i) drop(&request[i]);
}

CASE(S2_start_of_null, .ranks = 2) {
  MPI_Request request = MPI_REQUEST_NULL;
  EXPECT_ERROR(MPI_Start(&request), MPI_ERR_REQUEST);
}
