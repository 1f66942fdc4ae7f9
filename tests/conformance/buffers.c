// Access to buffers: which side, when. I13 (nothing leaves before Pready), I14 (nothing comes
// before Start or after completion), C1, C3.
#include <stdlib.h>
#include <string.h>

#include "case.h"

enum { kTag = 3 };

static const size_t kSizes[] = {64, 4096, 65536, 1 << 20};
enum { kSizeCount = sizeof(kSizes) / sizeof(kSizes[0]) };

/// One sender that changes every partition until just before its Pready.
static void changes_until_ready(size_t bytes) {
  enum { kPartitions = 8, kRounds = 4 };
  const size_t part = bytes / kPartitions;
  unsigned char* data = guarded(bytes);
  MPI_Request request = my_rank == 0
                            ? psend(data, kPartitions, (MPI_Count)part, MPI_BYTE, 1, kTag, comm)
                            : precv(data, kPartitions, (MPI_Count)part, MPI_BYTE, 0, kTag, comm);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    if (my_rank == 0) fill(data, bytes, 99, round);  // not the bytes to send
    start(&request);
    if (my_rank == 0) {
      for (int i = 0; i < kPartitions; ++i) {
        if (i == kPartitions / 2) await(0, (int)round, 1);  // let the receiver progress
        fill_part(data + (size_t)i * part, (size_t)i * part, part, 1, round);
        ready(request, i);
      }
    } else {
      for (int i = 0; i < 100; ++i) arrived(request, i % kPartitions);
      post(0, (int)round);
    }
    complete(&request);
    if (my_rank == 1) EXPECT_STREAM(data, bytes, 1, round);
  }
  check_guards(data, bytes);
  drop(&request);
  release_guarded(data);
}

CASE(I13_nothing_leaves_before_pready, .ranks = 2) {
  for (int i = 0; i < kSizeCount; ++i) {
    post(0, 0);
    MPI_Barrier(world);
    changes_until_ready(kSizes[i]);
    MPI_Barrier(world);
  }
}

/// The sender is ready long before the receiver starts; the receiver reads its buffer before each
/// Start.
static void untouched_outside_round(size_t bytes, int flag) {
  enum { kRounds = 4, kPartitions = 4 };
  const MPI_Count part = (MPI_Count)(bytes / kPartitions);
  unsigned char* data = guarded(bytes);
  MPI_Request request = my_rank == 0 ? psend(data, kPartitions, part, MPI_BYTE, 1, kTag, comm)
                                     : precv(data, kPartitions, part, MPI_BYTE, 0, kTag, comm);
  for (int round = 1; round <= kRounds; ++round) {
    if (my_rank == 0) {
      fill(data, bytes, 1, (uint64_t)round);
      start(&request);
      ready_all(request, kPartitions);
      post(flag, round);
      complete(&request);
    } else {
      memset(data, kUntouched, bytes);
      await(flag, round, 5);
      const double end = now_s() + (round <= 2 ? 0.02 : 0.002);
      while (now_s() < end) {
        int seen;
        MUST(MPI_Iprobe(0, 12345, comm, &seen,
                        MPI_STATUS_IGNORE));  // progress, if the peer needs it
      }
      EXPECT_DATA(untouched(data, bytes), "round %d: the buffer was written before Start", round);
      start(&request);
      complete(&request);
      EXPECT_STREAM(data, bytes, 1, (uint64_t)round);
    }
  }
  check_guards(data, bytes);
  drop(&request);
  release_guarded(data);
}

CASE(I14_no_write_before_start, .ranks = 2) {
  for (int i = 0; i < kSizeCount; ++i) untouched_outside_round(kSizes[i], i);
}

CASE(I14_no_write_after_completion, .ranks = 2) {
  enum { kRounds = 20, kBytes = 32768 };
  unsigned char* data = guarded(kBytes);
  MPI_Request request = my_rank == 0 ? psend(data, 4, kBytes / 4, MPI_BYTE, 1, kTag, comm)
                                     : precv(data, 8, kBytes / 8, MPI_BYTE, 0, kTag, comm);
  for (int round = 1; round <= kRounds; ++round) {
    if (my_rank == 0) fill(data, kBytes, 1, (uint64_t)round);
    start(&request);
    if (my_rank == 0) ready_all(request, 4);
    complete(&request);
    if (my_rank == 1) {
      EXPECT_STREAM(data, kBytes, 1, (uint64_t)round);
      memset(data, kUntouched, kBytes);
      compute_s(0.001);  // the sender may be in its next round by now
      EXPECT_DATA(untouched(data, kBytes), "round %d: written after completion", round);
    }
  }
  check_guards(data, kBytes);
  drop(&request);
  release_guarded(data);
}

/// @param end  marks the partitions and completes the round
static void guarded_rounds(size_t bytes, int sent, int received, int rounds,
                           void (*end)(MPI_Request* request, unsigned char* data, size_t bytes,
                                       uint64_t round)) {
  unsigned char* data = guarded(bytes);
  MPI_Request request = byte_pair(data, bytes, sent, received, kTag);
  for (uint64_t round = 1; round <= (uint64_t)rounds; ++round) {
    if (my_rank == 0) fill(data, bytes, 1, round);
    start(&request);
    end(&request, data, bytes, round);
    if (my_rank == 1) EXPECT_STREAM(data, bytes, 1, round);
  }
  drop(&request);
  release_guarded(data);
}

static void write_after_completion(MPI_Request* request, unsigned char* data, size_t bytes,
                                   uint64_t round) {
  if (my_rank == 0) {
    ready_all(*request, 8);
    complete(request);
    memset(data, 0, bytes);  // the received bytes must not depend on it any more
  } else {
    if (round % 3 == 0) pause_s(0.002);
    complete(request);
  }
}

CASE(C1_send_buffer_is_free_after_completion, .ranks = 2) {
  guarded_rounds(1 << 17, 8, 8, 30, write_after_completion);
}

static void test_until_complete(MPI_Request* request, unsigned char* data, size_t bytes,
                                uint64_t round) {
  (void)data;
  (void)bytes;
  (void)round;
  if (my_rank == 0) {
    for (int i = 0; i < 12; ++i) ready(*request, (i * 7) % 12);
    complete(request);
  } else {
    while (!tested(request)) {
    }
  }
}

CASE(C3_receive_completion_means_all_data, .ranks = 2) {
  guarded_rounds(6000, 12, 5, 200, test_until_complete);
}
