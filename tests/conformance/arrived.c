// Parrived: which requests, which partitions, and the promises of its answers.
#include <string.h>

#include "case.h"

enum { kTag = 17, kPartitions = 4 };

static MPI_Request pair_of(int* data) { return int_pair(data, kPartitions, kTag); }

static void finish_round(MPI_Request* request, int* data) {
  if (my_rank == 0) {
    for (int i = 0; i < kPartitions; ++i) data[i] = 40 + i;
    ready_all(*request, kPartitions);
  }
  complete(request);
  for (int i = 0; i < kPartitions; ++i) EXPECT_DATA(data[i] == 40 + i, "%d: %d", i, data[i]);
}

CASE(P1_parrived_of_a_send, .ranks = 2) {
  int data[kPartitions] = {0}, flag = 0;
  MPI_Request request = pair_of(data);
  start(&request);
  if (my_rank == 0) EXPECT_ERROR(MPI_Parrived(request, 0, &flag), MPI_ERR_REQUEST);
  finish_round(&request, data);
  drop(&request);
}

CASE(P1_parrived_of_another_kind, .ranks = 2) {
  int value[2] = {3, 0}, flag = 0;
  MPI_Request other[2];
  MUST(MPI_Irecv(&value[1], 1, MPI_INT, my_peer, kTag, comm, &other[1]));
  EXPECT_ERROR(MPI_Parrived(other[1], 0, &flag), MPI_ERR_REQUEST);
  MUST(MPI_Isend(&value[0], 1, MPI_INT, my_peer, kTag, comm, &other[0]));
  MUST(MPI_Waitall(2, other, MPI_STATUSES_IGNORE));
  EXPECT_DATA(value[1] == 3, "found %d", value[1]);
}

CASE(P2_parrived_of_null, .ranks = 2) {
  int flag = 0;
  MUST(MPI_Parrived(MPI_REQUEST_NULL, 0, &flag));
  EXPECT(flag, "false");
}

CASE(P2_parrived_of_an_inactive_request, .ranks = 2) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  if (my_rank == 1) EXPECT(arrived(request, 2), "false before the first Start");
  start(&request);
  finish_round(&request, data);
  if (my_rank == 1) {
    for (int i = 0; i < kPartitions; ++i) EXPECT(arrived(request, i), "false after completion");
  }
  drop(&request);
}

CASE(P3_parrived_does_not_complete, .ranks = 2) {
  int data[kPartitions] = {0};
  MPI_Request request = pair_of(data);
  for (int round = 0; round < 3; ++round) {
    start(&request);
    if (my_rank == 0) {
      finish_round(&request, data);
      continue;
    }
    for (int i = 0; i < kPartitions; ++i) {
      for (int again = 0; again < 3; ++again) {
        EXPECT(arrives(request, i, 5), "partition %d does not arrive", i);
      }
      EXPECT_DATA(data[i] == 40 + i, "partition %d arrived with %d", i, data[i]);
    }
    int flag = 0;
    MPI_Status status;
    MUST(MPI_Request_get_status(request, &flag, &status));
    EXPECT(flag && status.MPI_SOURCE == 0 && status.MPI_TAG == kTag,
           "the request is not active any more: flag %d, source %d", flag, status.MPI_SOURCE);
    finish_round(&request, data);
    memset(data, 0, sizeof(data));
  }
  drop(&request);
}

/// Partitions become ready one by one; arrived bytes may be read at once.
static void readable(int senders, int receivers, size_t bytes) {
  enum { kRounds = 4 };
  unsigned char* data = guarded(bytes);
  const size_t from = bytes / (size_t)senders, to = bytes / (size_t)receivers;
  MPI_Request request = my_rank == 0
                            ? psend(data, senders, (MPI_Count)from, MPI_BYTE, 1, kTag, comm)
                            : precv(data, receivers, (MPI_Count)to, MPI_BYTE, 0, kTag, comm);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    if (my_rank == 0) fill(data, bytes, 2, round);
    start(&request);
    if (my_rank == 0) {
      for (int i = 0; i < senders; ++i) {
        ready(request, i);
        compute_s(0.0002);
      }
    } else {
      for (int left = receivers; left > 0;) {
        left = receivers;
        for (int i = 0; i < receivers; ++i) {
          if (!arrived(request, i)) continue;
          --left;
          const int64_t wrong = wrong_byte(data + (size_t)i * to, (size_t)i * to, to, 2, round);
          EXPECT_DATA(wrong < 0, "round %d, S %d, R %d: partition %d arrived, byte %lld is wrong",
                      (int)round, senders, receivers, i, (long long)wrong);
        }
        if (case_failed()) break;
      }
    }
    complete(&request);
  }
  check_guards(data, bytes);
  drop(&request);
  release_guarded(data);
}

CASE(P3_what_has_arrived_is_readable, .ranks = 2) {
  static const int kSplits[][2] = {{8, 4}, {6, 4}, {4, 8}, {4, 6}, {7, 4}, {5, 3}, {1, 6}, {6, 1}};
  for (size_t i = 0; i < sizeof(kSplits) / sizeof(kSplits[0]); ++i) {
    const size_t unit = (size_t)(kSplits[i][0] * kSplits[i][1]);
    readable(kSplits[i][0], kSplits[i][1], unit * 16);
    readable(kSplits[i][0], kSplits[i][1], unit * 8192);
  }
}

CASE(P4_parrived_alone_makes_progress, .ranks = 2, .traits = kEveryLevel) {
  enum { kBytes = 1 << 18, kRounds = 5 };
  unsigned char* data = guarded(kBytes);
  MPI_Request request =
      my_rank == 0 ? psend(data, kPartitions, kBytes / kPartitions, MPI_BYTE, 1, kTag, comm)
                   : precv(data, kPartitions, kBytes / kPartitions, MPI_BYTE, 0, kTag, comm);
  for (int round = 1; round <= kRounds; ++round) {
    if (my_rank == 0) {
      fill(data, kBytes, 1, (uint64_t)round);
      start(&request);
      ready_all(request, kPartitions);
      complete(&request);
    } else {
      start(&request);
      for (int i = kPartitions - 1; i >= 0; --i) {
        EXPECT(arrives(request, i, 5), "round %d: partition %d does not arrive", round, i);
      }
      EXPECT_STREAM(data, kBytes, 1, (uint64_t)round);
      complete(&request);
    }
  }
  drop(&request);
  release_guarded(data);
}

CASE(P6_partition_out_of_range, .ranks = 2) {
  int data[kPartitions] = {0}, flag = 0;
  MPI_Request request = pair_of(data);
  start(&request);
  if (my_rank == 1) {
    EXPECT_ERROR(MPI_Parrived(request, -1, &flag), MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Parrived(request, kPartitions, &flag), MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Parrived(request, 1 << 30, &flag), MPI_ERR_ARG);
  }
  finish_round(&request, data);
  drop(&request);
}
