// Exact data: I7 (numbers of partitions differ freely), C3 in many splits, sizes and rounds,
// requests over 4 GiB (I11).
#include <stdlib.h>
#include <string.h>

#include "case.h"

enum { kTag = 67 };

static void rounds_of(int senders, int receivers, size_t bytes, int rounds) {
  unsigned char* data = guarded(bytes);
  const MPI_Count s = (MPI_Count)(bytes / (size_t)senders);
  const MPI_Count r = (MPI_Count)(bytes / (size_t)receivers);
  MPI_Request request = my_rank == 0 ? psend(data, senders, s, MPI_BYTE, 1, kTag, comm)
                                     : precv(data, receivers, r, MPI_BYTE, 0, kTag, comm);
  for (int round = 1; round <= rounds; ++round) {
    if (my_rank == 0) fill(data, bytes, 3, (uint64_t)round);
    start(&request);
    if (my_rank == 0) {
      const int middle = senders / 2;
      for (int i = middle; i < senders; ++i) ready(request, i);
      if (middle > 0) MUST(MPI_Pready_range(0, middle - 1, request));
    }
    complete(&request);
    if (my_rank == 1) {
      const int64_t wrong = wrong_byte(data, 0, bytes, 3, (uint64_t)round);
      EXPECT_DATA(wrong < 0, "S %d, R %d, %zu bytes, round %d: byte %lld is wrong", senders,
                  receivers, bytes, round, (long long)wrong);
    }
  }
  check_guards(data, bytes);
  drop(&request);
  release_guarded(data);
}

CASE(I7_numbers_of_partitions_differ, .ranks = 2, .traits = kSessions) {
  for (int senders = 1; senders <= 12; ++senders) {
    for (int receivers = 1; receivers <= 12; ++receivers) {
      rounds_of(senders, receivers, (size_t)(senders * receivers) * 3, 2);
    }
  }
}

CASE(C3_random_splits_up_to_4096, .ranks = 2) {
  uint64_t seed = 2026;
  for (int i = 0; i < 16; ++i) {
    const int senders = random_between(&seed, 1, 4096), receivers = random_between(&seed, 1, 4096);
    const size_t unit = (size_t)senders * (size_t)receivers;
    rounds_of(senders, receivers, unit > 4000000 ? unit : unit * 2, 2);
  }
  rounds_of(4096, 4096, 4096 * 8, 5);
  rounds_of(4096, 1, 4096 * 4, 3);
  rounds_of(1, 4096, 4096 * 4, 3);
}

CASE(C3_sizes_around_powers_of_two, .ranks = 2) {
  for (size_t bytes = 1; bytes <= 1 << 21; bytes *= 4) {
    rounds_of(1, 1, bytes, 2);
    rounds_of(1, 1, bytes + 1, 2);
    rounds_of(4, 2, 4 * bytes, 2);
  }
}

CASE(C3_ten_thousand_rounds, .ranks = 2, .deadline_s = 40) { rounds_of(6, 4, 12 * 16, 10000); }

CASE(C3_both_directions_at_once, .ranks = 2) {
  enum { kParts = 8, kBytes = 1 << 16, kRounds = 50 };
  unsigned char *out = guarded(kBytes), *in = guarded(kBytes);
  MPI_Request request[2] = {
      psend(out, kParts, kBytes / kParts, MPI_BYTE, my_peer, kTag, comm),
      precv(in, kParts / 2, kBytes * 2 / kParts, MPI_BYTE, my_peer, kTag, comm)};
  for (uint64_t round = 1; round <= kRounds; ++round) {
    fill(out, kBytes, (uint64_t)my_rank, round);
    MUST(MPI_Startall(2, request));
    ready_all(request[0], kParts);
    MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
    EXPECT_STREAM(in, kBytes, (uint64_t)my_peer, round);
  }
  check_guards(in, kBytes);
  drop(&request[0]);
  drop(&request[1]);
  release_guarded(out);
  release_guarded(in);
}

CASE(C3_ring_of_four, .ranks = 4) {
  enum { kParts = 6, kBytes = 6 * 1024, kRounds = 30 };
  unsigned char *out = guarded(kBytes), *in = guarded(kBytes);
  const int left = (my_rank + 3) % 4, right = (my_rank + 1) % 4;
  MPI_Request request[2] = {precv(in, 4, kBytes / 4, MPI_BYTE, left, kTag, comm),
                            psend(out, kParts, kBytes / kParts, MPI_BYTE, right, kTag, comm)};
  for (uint64_t round = 1; round <= kRounds; ++round) {
    fill(out, kBytes, (uint64_t)my_rank, round);
    MUST(MPI_Startall(2, request));
    for (int i = 0; i < kParts; ++i) ready(request[1], i);
    MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
    EXPECT_STREAM(in, kBytes, (uint64_t)left, round);
  }
  drop(&request[0]);
  drop(&request[1]);
  release_guarded(out);
  release_guarded(in);
}

CASE(C3_many_channels, .ranks = 2) {
  enum { kChannels = 200, kBytes = 96, kRounds = 20 };
  static unsigned char data[kChannels][kBytes];
  static MPI_Request request[kChannels];
  for (int c = 0; c < kChannels; ++c) {
    request[c] = my_rank == 0 ? psend(data[c], 3, kBytes / 3, MPI_BYTE, 1, c, comm)
                              : precv(data[c], 4, kBytes / 4, MPI_BYTE, 0, c, comm);
  }
  for (uint64_t round = 1; round <= kRounds; ++round) {
    MUST(MPI_Startall(kChannels, request));
    for (int c = 0; c < kChannels && my_rank == 0; ++c) {
      fill(data[c], kBytes, (uint64_t)c, round);
      ready_all(request[c], 3);
    }
    MUST(MPI_Waitall(kChannels, request, MPI_STATUSES_IGNORE));
    for (int c = 0; c < kChannels && my_rank == 1; ++c) {
      EXPECT_STREAM(data[c], kBytes, (uint64_t)c, round);
    }
  }
  for (int c = 0; c < kChannels; ++c) drop(&request[c]);
}

CASE(I11_over_four_gibibytes, .ranks = 2, .traits = kBig, .deadline_s = 300) {
  enum { kSenders = 4, kReceivers = 3 };
  const size_t bytes =
      (size_t)12 * 384 * 1024 * 1024;  // 4.5 GiB; a partition of either side is over 1 GiB
  unsigned char* data = malloc(bytes);
  REQUIRE(data != NULL, "no memory");
  MPI_Request request =
      my_rank == 0
          ? psend(data, kSenders, (MPI_Count)(bytes / kSenders), MPI_BYTE, 1, kTag, comm)
          : precv(data, kReceivers, (MPI_Count)(bytes / kReceivers), MPI_BYTE, 0, kTag, comm);
  if (my_rank == 0) {
    fill(data, bytes, 1, 1);
  } else {
    memset(data, 0, bytes);
  }
  start(&request);
  if (my_rank == 0) ready_all(request, kSenders);
  MPI_Status status;
  MPI_Count count = 0;
  MUST(MPI_Wait(&request, &status));
  if (my_rank == 1) {
    EXPECT_STREAM(data, bytes, 1, 1);
    MUST(MPI_Get_elements_x(&status, MPI_BYTE, &count));
    EXPECT(count == (MPI_Count)bytes, "the status says %lld bytes", (long long)count);
  }
  drop(&request);
  free(data);
}

CASE(M_two_gigabytes_in_four_partitions, .ranks = 2, .traits = kBig, .deadline_s = 200) {
  rounds_of(4, 4, (size_t)2400 * 1000 * 1000, 1);
}
