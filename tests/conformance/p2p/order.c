// Order of messages between two processes, and choice by source, tag and communicator.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 21 };

static size_t size_of_message(int i) {
  static const size_t kMix[] = {4, 4, 100000, 8, 4, 5000, 4, 300000, 64, 20000, 4, 1000};
  return kMix[i % 12];
}

CASE(OR1_messages_of_one_tag_stay_in_order, .ranks = 2, .traits = kEveryLevel | kSessions) {
  enum { kMessages = 400, kWindow = 40 };
  static unsigned char data[kWindow][300000];
  MPI_Request request[kWindow];
  for (int base = 0; base < kMessages; base += kWindow) {
    for (int i = 0; i < kWindow; ++i) {
      const size_t bytes = size_of_message(base + i);
      if (my_rank == 0) {
        fill(data[i], bytes, 1, (uint64_t)(base + i));
        request[i] = isend(data[i], (int)bytes, 1, kTag);
      } else {
        request[i] = irecv(data[i], (int)sizeof(data[i]), 0, kTag);
      }
    }
    MPI_Status status[kWindow];
    MUST(MPI_Waitall(kWindow, request, status));
    for (int i = 0; my_rank == 1 && i < kWindow; ++i) {
      EXPECT_STATUS(&status[i], 0, kTag, (long long)size_of_message(base + i));
      EXPECT_STREAM(data[i], size_of_message(base + i), 1, (uint64_t)(base + i));
    }
  }
}

/// A long message whose data follows later is not overtaken by short ones.
CASE(OR1_short_messages_behind_a_long_one, .ranks = 2) {
  enum { kLong = 4 << 20, kShort = 200 };
  unsigned char* data = memory(kLong);
  if (my_rank == 0) {
    MPI_Request request[kShort + 1];
    int value[kShort];
    fill(data, kLong, 2, 0);
    request[0] = isend(data, kLong, 1, kTag);
    for (int i = 0; i < kShort; ++i) {
      value[i] = i;
      request[i + 1] = isend_int(&value[i], 1, kTag);
    }
    post(0, 1);
    MUST(MPI_Waitall(kShort + 1, request, MPI_STATUSES_IGNORE));
  } else {
    MPI_Status status;
    await(0, 1, 5);
    MUST(MPI_Recv(data, kLong, MPI_BYTE, 0, MPI_ANY_TAG, comm, &status));
    EXPECT_STATUS(&status, 0, kTag, kLong);
    EXPECT_STREAM(data, kLong, 2, 0);
    for (int i = 0; i < kShort; ++i) {
      const int value = recv_int(MPI_ANY_SOURCE, kTag, MPI_STATUS_IGNORE);
      EXPECT_DATA(value == i, "message %d came as number %d", value, i);
    }
  }
  free(data);
}

CASE(OR1_any_tag_follows_the_order_of_the_sends, .ranks = 2) {
  enum { kMessages = 500 };
  if (my_rank == 0) {
    for (int i = 0; i < kMessages; ++i) send_int(i, 1, (i * 37) % 101);
    post(0, 1);
  } else {
    await(0, 1, 5);
    for (int i = 0; i < kMessages; ++i) {
      MPI_Status status;
      const int value = recv_int(0, MPI_ANY_TAG, &status);
      EXPECT_DATA(value == i, "message %d came as number %d", value, i);
      EXPECT_STATUS(&status, 0, (i * 37) % 101, 4);
    }
  }
}

/// Of two receives that fit, the one posted first gets the message.
CASE(OR2_receives_match_in_the_order_of_posting, .ranks = 2) {
  enum { kReceives = 6 };
  static const int kTags[kReceives] = {MPI_ANY_TAG, 5, MPI_ANY_TAG, 5, 7, MPI_ANY_TAG};
  static const int kSources[kReceives] = {0, MPI_ANY_SOURCE, MPI_ANY_SOURCE, 0, 0, 0};
  static const int kSent[kReceives] = {5, 5, 7, 7, 5, 9}, kGot[kReceives] = {0, 1, 2, 4, 3, 5};
  int value[kReceives];
  MPI_Request request[kReceives];
  if (my_rank == 1) {
    for (int i = 0; i < kReceives; ++i) {
      value[i] = -1;
      request[i] = irecv_int(&value[i], kSources[i], kTags[i]);
    }
    post(0, 1);
    MUST(MPI_Waitall(kReceives, request, MPI_STATUSES_IGNORE));
    for (int i = 0; i < kReceives; ++i) EXPECT_DATA(value[i] == kGot[i], "%d: %d", i, value[i]);
  } else {
    await(0, 1, 5);
    for (int i = 0; i < kReceives; ++i) send_int(i, 1, kSent[i]);
  }
}

enum { kRandomMessages = 64 };

typedef struct Pattern {
  int source, tag;
} Pattern;

/// Matches sends to receives as MPI 3.5 says, receives first or sends first: the same result.
/// @param got  of each receive, its message or -1
static void match(const int* tags, const Pattern* receives, int* got) {
  bool taken[kRandomMessages] = {false};
  for (int r = 0; r < kRandomMessages; ++r) {
    got[r] = -1;
    for (int m = 0; m < kRandomMessages && got[r] < 0; ++m) {
      if (taken[m] || (receives[r].tag != MPI_ANY_TAG && receives[r].tag != tags[m])) continue;
      taken[m] = true;
      got[r] = m;
    }
  }
}

static void random_patterns(int first, uint64_t seed) {
  int tags[kRandomMessages], got[kRandomMessages], value[kRandomMessages];
  Pattern receives[kRandomMessages];
  for (int i = 0; i < kRandomMessages; ++i) {
    tags[i] = random_between(&seed, 0, 3);
    receives[i].tag = random_between(&seed, 0, 2) == 0 ? MPI_ANY_TAG : tags[i];
    receives[i].source = random_between(&seed, 0, 1) == 0 ? MPI_ANY_SOURCE : 0;
    value[i] = my_rank == 0 ? i : -1;
  }
  match(tags, receives, got);
  MPI_Request request[kRandomMessages];
  if (my_rank != first) meet();
  for (int i = 0; i < kRandomMessages; ++i) {
    request[i] = my_rank == 0 ? isend_int(&value[i], 1, tags[i])
                              : irecv_int(&value[i], receives[i].source, receives[i].tag);
  }
  if (my_rank == first) meet();
  if (my_rank == 0) {
    MUST(MPI_Waitall(kRandomMessages, request, MPI_STATUSES_IGNORE));
    return;
  }
  for (int i = 0; i < kRandomMessages; ++i) {
    if (got[i] < 0) {  // another message of its tag went to an earlier wildcard
      MUST(MPI_Cancel(&request[i]));
      MUST(MPI_Wait(&request[i], MPI_STATUS_IGNORE));
      continue;
    }
    MPI_Status status;
    MUST(MPI_Wait(&request[i], &status));
    EXPECT_DATA(value[i] == got[i], "receive %d got message %d, expected %d", i, value[i], got[i]);
    EXPECT_STATUS(&status, 0, tags[got[i]], 4);
  }
  int left = 0;
  for (int i = 0; i < kRandomMessages; ++i) left += got[i] < 0;
  for (; left > 0; --left) recv_int(0, MPI_ANY_TAG, MPI_STATUS_IGNORE);
}

CASE(OR2_random_patterns_posted_first, .ranks = 2) {
  for (uint64_t round = 1; round <= 20; ++round) random_patterns(1, round << 20);
}
CASE(OR2_random_patterns_sent_first, .ranks = 2) {
  for (uint64_t round = 1; round <= 20; ++round) random_patterns(0, round << 24);
}

CASE(OR3_tags_choose_the_message, .ranks = 2) {
  enum { kMessages = 1000 };
  if (my_rank == 0) {
    for (int i = 0; i < kMessages; ++i) send_int(i, 1, i);
    post(0, 1);
  } else {
    await(0, 1, 5);
    for (int i = kMessages - 1; i >= 0; --i) {
      MPI_Status status;
      const int value = recv_int(0, i, &status);
      EXPECT_DATA(value == i, "tag %d has message %d", i, value);
      EXPECT_STATUS(&status, 0, i, 4);
    }
  }
}

CASE(OR3_smallest_and_largest_tag, .ranks = 2) {
  const int largest = largest_tag();
  EXPECT(largest >= 32767, "MPI_TAG_UB is %d", largest);
  const int tags[] = {0, largest, largest - 1, 32767, 1};
  for (int i = 0; i < 5; ++i) {
    if (my_rank == 0) {
      send_int(i, 1, tags[i]);
    } else {
      MPI_Status status;
      EXPECT_DATA(recv_int(0, tags[i], &status) == i, "tag %d", tags[i]);
      EXPECT_STATUS(&status, 0, tags[i], 4);
    }
  }
}

CASE(OR3_sources_choose_the_message, .ranks = 4) {
  if (my_rank > 0) {
    for (int i = 0; i < 50; ++i) send_int(100 * my_rank + i, 0, kTag);
  } else {
    for (int source = 3; source > 0; --source) {
      for (int i = 0; i < 50; ++i) {
        const int value = recv_int(source, kTag, MPI_STATUS_IGNORE);
        EXPECT_DATA(value == 100 * source + i, "source %d: %d", source, value);
      }
    }
  }
}

CASE(OR4_any_source_keeps_each_sources_order, .ranks = 4, .traits = kEveryLevel) {
  enum { kMessages = 300 };
  if (my_rank > 0) {
    for (int i = 0; i < kMessages; ++i) send_int(i, 0, i % 5);
  } else {
    int next[4] = {0};
    for (int i = 0; i < 3 * kMessages; ++i) {
      MPI_Status status;
      const int value = recv_int(MPI_ANY_SOURCE, MPI_ANY_TAG, &status);
      const int source = status.MPI_SOURCE;
      REQUIRE(source > 0 && source < 4, "source %d", source);
      EXPECT_DATA(value == next[source], "source %d: message %d, expected %d", source, value,
                  next[source]);
      EXPECT(status.MPI_TAG == value % 5, "tag %d of message %d", status.MPI_TAG, value);
      ++next[source];
    }
  }
}

/// A specific receive posted before a wildcard keeps its message, and the other way round.
CASE(OR4_wildcards_between_specific_receives, .ranks = 4) {
  if (my_rank == 0) {
    int value[4] = {0};
    MPI_Request request[4] = {irecv_int(&value[0], 2, kTag),
                              irecv_int(&value[1], MPI_ANY_SOURCE, kTag),
                              irecv_int(&value[2], 2, MPI_ANY_TAG), irecv_int(&value[3], 2, kTag)};
    post(0, 1);
    MUST(MPI_Waitall(4, request, MPI_STATUSES_IGNORE));
    EXPECT_DATA(value[0] == 1 && value[1] == 2 && value[2] == 3 && value[3] == 4,
                "%d %d %d %d, expected 1 2 3 4", value[0], value[1], value[2], value[3]);
  } else if (my_rank == 2) {
    await(0, 1, 5);
    for (int i = 1; i <= 4; ++i) send_int(i, 0, kTag);
  }
}

CASE(OR5_communicators_do_not_mix, .ranks = 2) {
  MPI_Comm second;
  MUST(MPI_Comm_dup(comm, &second));
  if (my_rank == 0) {
    int value = 1, other = 2;
    MUST(MPI_Send(&value, 1, MPI_INT, 1, kTag, comm));
    MUST(MPI_Send(&other, 1, MPI_INT, 1, kTag, second));
  } else {
    int other = 0, flag = 1;
    MUST(MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, second, MPI_STATUS_IGNORE));
    EXPECT_DATA(other == 2, "the second communicator gave message %d", other);
    MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, second, &flag, MPI_STATUS_IGNORE));
    EXPECT(!flag, "a message of another communicator is visible");
    EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == 1, "the first communicator");
  }
  MUST(MPI_Comm_free(&second));
}

/// A wildcard receive of the user sees no message of a collective operation.
CASE(OR5_collectives_do_not_match_receives, .ranks = 4) {
  int value = 0, sum = 0;
  MPI_Request request = irecv_int(&value, MPI_ANY_SOURCE, MPI_ANY_TAG);
  for (int i = 0; i < 20; ++i) {
    MUST(MPI_Allreduce(&my_rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    EXPECT_DATA(sum == 6, "the sum is %d", sum);
    MUST(MPI_Barrier(comm));
  }
  EXPECT(!tested(&request), "a collective operation completed a receive");
  meet();
  send_int(my_rank, (my_rank + 1) % 4, kTag);
  complete(&request);
  EXPECT_DATA(value == (my_rank + 3) % 4, "received %d", value);
}

CASE(OR6_a_nonblocking_call_comes_before_a_later_blocking_one, .ranks = 2) {
  for (int round = 0; round < 50; ++round) {
    int first = 2 * round, second = 2 * round + 1;
    if (my_rank == 0) {
      MPI_Request request = isend_int(&first, 1, kTag);
      MUST(MPI_Send(&second, 1, MPI_INT, 1, kTag, comm));
      complete(&request);
    } else {
      int got = -1;
      MPI_Request request = irecv_int(&got, 0, kTag);
      const int later = recv_int(0, kTag, MPI_STATUS_IGNORE);
      complete(&request);
      EXPECT_DATA(got == first && later == second, "round %d: %d, %d", round, got, later);
    }
  }
}

static void all_arrive(const char* key1, const char* key2, bool in_order) {
#if MPI_VERSION >= 4
  enum { kMessages = 300, kTags = 4 };
  MPI_Info info;
  MPI_Comm hinted;
  MUST(MPI_Info_create(&info));
  if (key1) MUST(MPI_Info_set(info, key1, "true"));
  if (key2) MUST(MPI_Info_set(info, key2, "true"));
  MUST(MPI_Comm_dup_with_info(comm, info, &hinted));
  MUST(MPI_Info_free(&info));
  MPI_Request request[kMessages];
  int value[kMessages];
  bool seen[kMessages] = {false};
  for (int i = 0; i < kMessages; ++i) {
    value[i] = i;
    if (my_rank == 0) {
      MUST(MPI_Isend(&value[i], 1, MPI_INT, 1, i % kTags, hinted, &request[i]));
    } else {
      MUST(MPI_Irecv(&value[i], 1, MPI_INT, 0, i % kTags, hinted, &request[i]));
    }
  }
  MUST(MPI_Waitall(kMessages, request, MPI_STATUSES_IGNORE));
  for (int i = 0; my_rank == 1 && i < kMessages; ++i) {
    REQUIRE(value[i] >= 0 && value[i] < kMessages && !seen[value[i]], "message %d twice", value[i]);
    seen[value[i]] = true;
    EXPECT_DATA(value[i] % kTags == i % kTags, "receive %d got message %d", i, value[i]);
    EXPECT_DATA(!in_order || value[i] == i, "receive %d got message %d", i, value[i]);
  }
  MUST(MPI_Comm_free(&hinted));
#else
  (void)key1, (void)key2, (void)in_order;
  case_skip("MPI before 4.0");
#endif
}

CASE(OR7_assert_allow_overtaking_loses_nothing, .ranks = 2) {
  all_arrive("mpi_assert_allow_overtaking", NULL, false);
}
CASE(OR7_assert_no_wildcards_keeps_each_tags_order, .ranks = 2) {
  all_arrive("mpi_assert_no_any_source", "mpi_assert_no_any_tag", true);
}
CASE(OR7_assert_exact_length, .ranks = 2) { all_arrive("mpi_assert_exact_length", NULL, true); }

/// Hints may be given later, while no message is in flight.
CASE(OR7_hints_by_set_info_between_messages, .ranks = 2) {
#if MPI_VERSION >= 4
  static const char* const kKeys[] = {"mpi_assert_no_any_tag", "mpi_assert_no_any_source",
                                      "mpi_assert_allow_overtaking"};
  for (int round = 0; round < 6; ++round) {
    MPI_Info info;
    MUST(MPI_Info_create(&info));
    MUST(MPI_Info_set(info, kKeys[round % 3], round < 3 ? "true" : "false"));
    MUST(MPI_Comm_set_info(comm, info));
    MUST(MPI_Info_free(&info));
    for (int i = 0; i < 50; ++i) {
      if (my_rank == 0) {
        send_int(i, 1, i % 3);
      } else {
        EXPECT_DATA(recv_int(0, i % 3, MPI_STATUS_IGNORE) == i, "round %d, message %d", round, i);
      }
    }
    meet();
  }
#else
  case_skip("MPI before 4.0");
#endif
}
