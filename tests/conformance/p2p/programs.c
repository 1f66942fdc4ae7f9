// Programs that have broken, or could break, a library that moves messages by itself.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "messages.h"

enum { kTag = 171 };

/// 20,000 messages that no receive waits for, then one that the receiver takes first.
CASE(PX1_a_message_behind_20000_unexpected_ones, .ranks = 2, .deadline_s = 40) {
  enum { kMessages = 20000, kBytes = 4096 };
  unsigned char* data = memory((size_t)kMessages * kBytes);
  if (my_rank == 0) {
    MPI_Request* request = memory(kMessages * sizeof(MPI_Request));
    for (int i = 0; i < kMessages; ++i) {
      unsigned char* at = data + (size_t)i * kBytes;
      fill(at, kBytes, 101, (uint64_t)i);
      request[i] = isend(at, kBytes, 1, 1);
    }
    send_int(5, 1, 2);
    MUST(MPI_Waitall(kMessages, request, MPI_STATUSES_IGNORE));
    free(request);
  } else {
    EXPECT_DATA(recv_int(0, 2, MPI_STATUS_IGNORE) == 5, "the last message");
    for (int i = 0; i < kMessages; ++i) {
      MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, 1, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, kBytes, 101, (uint64_t)i);
    }
  }
  free(data);
}

/// Figure 9 of "How I Learned to Stop Worrying About User-Visible Endpoints and Love MPI" (ICS'20):
/// the wait for the second message must drive the first one, which comes over another communicator.
static void figure9(int t, void* argument) {
  MPI_Comm* on = argument;
  int value = t + 1;
  if (my_rank == 0) {
    if (t == 1) await(0, 1, 10);  // the first Ssend has returned
    MUST(MPI_Ssend(&value, 1, MPI_INT, 1, kTag, on[t]));
    if (t == 0) post(0, 1);
  }
}

CASE(PX3_wait_on_one_communicator_drives_the_other, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  MPI_Comm on[2];
  int value[2] = {0};
  MPI_Request request[2];
  for (int i = 0; i < 2; ++i) MUST(MPI_Comm_dup(comm, &on[i]));
  if (my_rank == 0) {
    in_threads(2, figure9, on);
  } else {
    for (int i = 0; i < 2; ++i) MUST(MPI_Irecv(&value[i], 1, MPI_INT, 0, kTag, on[i], &request[i]));
    complete(&request[1]);
    complete(&request[0]);
    EXPECT_DATA(value[0] == 1 && value[1] == 2, "%d, %d", value[0], value[1]);
  }
  for (int i = 0; i < 2; ++i) MUST(MPI_Comm_free(&on[i]));
}

/// The same with a thread on each side of each communicator, where each waits for the other's.
static void crossed(int t, void* argument) {
  MPI_Comm* on = argument;
  for (int i = 0; i < 50; ++i) {
    int out = 10 * i + t, in = -1;
    MPI_Request request;
    MUST(MPI_Irecv(&in, 1, MPI_INT, my_peer, kTag, on[1 - t], &request));
    MUST(MPI_Ssend(&out, 1, MPI_INT, my_peer, kTag, on[t]));
    complete(&request);
    EXPECT_DATA(in == 10 * i + 1 - t, "thread %d, round %d: %d", t, i, in);
  }
}

CASE(PX3_threads_that_need_each_others_communicator, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  MPI_Comm on[2];
  for (int i = 0; i < 2; ++i) MUST(MPI_Comm_dup(comm, &on[i]));
  in_threads(2, crossed, on);
  for (int i = 0; i < 2; ++i) MUST(MPI_Comm_free(&on[i]));
}

enum { kTagged = 25000, kSenders = 4, kRest = 100 };

/// Thread t of rank 0 sends on tag t; thread 3 stops in the middle until the receiver asks.
static void tagged(int t, void* argument) {
  (void)argument;
  for (int i = 0; i < kTagged; ++i) {
    if (my_rank == 0) {
      if (t == 3 && i == kTagged / 2) await(0, 1, 30);
      send_int(i, 1, t);
    } else if (i < (t == 3 ? kTagged / 2 : kTagged) - kRest) {
      const int value = recv_int(0, t, MPI_STATUS_IGNORE);
      REQUIRE(value == i, "tag %d: %d, expected %d", t, value, i);
    }
  }
}

/// Wildcard receives and probes after 100,000 tagged messages of four threads, one of them stopped.
CASE(PX4_wildcards_after_100000_tagged_messages, .ranks = 2, .level = MPI_THREAD_MULTIPLE,
     .deadline_s = 60) {
  in_threads(kSenders, tagged, NULL);
  if (my_rank == 0) return;
  int next[kSenders], left = kSenders * kTagged;
  for (int t = 0; t < kSenders; ++t) {
    next[t] = (t == 3 ? kTagged / 2 : kTagged) - kRest;
    left -= next[t];
  }
  for (int n = 0; n < left; ++n) {
    MPI_Status status;
    if (n == kSenders * kRest) post(0, 1);  // all that has been sent is received
    if (n % 3 == 0) {
      MUST(MPI_Probe(0, MPI_ANY_TAG, comm, &status));
      const int tag = status.MPI_TAG;
      REQUIRE(tag >= 0 && tag < kSenders, "tag %d", tag);
    }
    const int value = recv_int(MPI_ANY_SOURCE, MPI_ANY_TAG, &status);
    const int tag = status.MPI_TAG;
    REQUIRE(tag >= 0 && tag < kSenders && value == next[tag], "tag %d: %d, expected %d", tag, value,
            next[tag]);
    ++next[tag];
  }
}

static void dup_and_free(int count) {
  for (int i = 0; i < count; ++i) {
    MPI_Comm made;
    MUST(MPI_Comm_dup(comm, &made));
    if (i % 100 == 0) {
      int in = -1;
      MUST(MPI_Sendrecv(&i, 1, MPI_INT, my_peer, kTag, &in, 1, MPI_INT, my_peer, kTag, made,
                        MPI_STATUS_IGNORE));
      EXPECT_DATA(in == i, "communicator %d: %d", i, in);
    }
    MUST(MPI_Comm_free(&made));
  }
}
CASE(PX5_3000_communicators_made_and_freed, .ranks = 2) { dup_and_free(3000); }
CASE(PX5_100000_communicators_made_and_freed, .ranks = 2, .traits = kBig, .deadline_s = 300) {
  dup_and_free(100000);
}

typedef struct Pair {
  MPI_Comm copy[2], half[2];
} Pair;

/// Two threads make intercommunicators of equal groups with one tag over two copies at once.
static void make_and_use(int t, void* argument) {
  Pair* pair = argument;
  for (int i = 0; i < 20; ++i) {
    MPI_Comm inter;
    int in = -1, out = 100 * t + i;
    MUST(MPI_Intercomm_create(pair->half[t], 0, pair->copy[t], my_peer, 7, &inter));
    MUST(MPI_Sendrecv(&out, 1, MPI_INT, 0, kTag, &in, 1, MPI_INT, 0, kTag, inter,
                      MPI_STATUS_IGNORE));
    EXPECT_DATA(in == out, "thread %d, round %d: %d", t, i, in);
    MUST(MPI_Comm_free(&inter));
  }
}

CASE(PX5_intercommunicators_of_two_threads_with_one_tag, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  Pair pair;
  for (int t = 0; t < 2; ++t) {
    MUST(MPI_Comm_dup(comm, &pair.copy[t]));
    MUST(MPI_Comm_dup(MPI_COMM_SELF, &pair.half[t]));
  }
  in_threads(2, make_and_use, &pair);
  for (int t = 0; t < 2; ++t) {
    MUST(MPI_Comm_free(&pair.copy[t]));
    MUST(MPI_Comm_free(&pair.half[t]));
  }
}

/// The sender makes no MPI call for a second after its last Isend: the messages arrive meanwhile.
static void sender_asleep(int messages, int bytes) {
  unsigned char* data = memory((size_t)messages * (size_t)bytes);
  MPI_Request* request = memory((size_t)messages * sizeof(MPI_Request));
  for (int i = 0; i < messages; ++i) {
    unsigned char* at = data + (size_t)i * (size_t)bytes;
    if (my_rank == 0) {
      fill(at, (size_t)bytes, 102, (uint64_t)i);
      request[i] = isend(at, bytes, 1, kTag);
    } else {
      request[i] = irecv(at, bytes, 0, kTag);
    }
  }
  if (my_rank == 0) {
    post(0, 1);
    const bool prompt = await(1, 1, 1);
    post(2, 1);
    EXPECT_PROMPT(prompt, "%d messages of %d bytes wait for the sender's next call", messages,
                  bytes);
  }
  MUST(MPI_Waitall(messages, request, MPI_STATUSES_IGNORE));
  if (my_rank == 1) {
    post(1, 1);
    for (int i = 0; i < messages; ++i) {
      EXPECT_STREAM(data + (size_t)i * (size_t)bytes, (size_t)bytes, 102, (uint64_t)i);
    }
  }
  free(data);
  free(request);
}
CASE(PX6_sender_asleep_after_a_short_isend, .ranks = 2) { sender_asleep(1, 8); }
CASE(PX6_sender_asleep_after_2000_isends, .ranks = 2) { sender_asleep(2000, 4096); }
CASE(PX6_sender_asleep_after_a_long_isend, .ranks = 2) { sender_asleep(1, 8 << 20); }

/// Collective input and output makes messages of its own.
CASE(PX7_files_beside_messages, .ranks = 4) {
  enum { kBytes = 100000, kLong = 1 << 20 };
  char name[200] = "";
  MPI_File file;
  unsigned char *block = memory(kBytes), *out = memory(kLong), *in = memory(kLong);
  const int right = (my_rank + 1) % 4, left = (my_rank + 3) % 4;
  if (my_rank == 0) snprintf(name, sizeof(name), "/tmp/conformance-io-%ld", (long)getpid());
  MUST(MPI_Bcast(name, (int)sizeof(name), MPI_CHAR, 0, comm));
  MUST(MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                     MPI_INFO_NULL, &file));
  for (uint64_t round = 0; round < 3; ++round) {
    const MPI_Offset place = (MPI_Offset)my_rank * kBytes, other = (MPI_Offset)left * kBytes;
    fill(block, kBytes, (uint64_t)my_rank, round);
    fill(out, kLong, 103, round);
    MPI_Request request[2] = {irecv(in, kLong, left, kTag), isend(out, kLong, right, kTag)};
    MUST(MPI_File_write_at_all(file, place, block, kBytes, MPI_BYTE, MPI_STATUS_IGNORE));
    MUST(MPI_Barrier(comm));
    MUST(MPI_File_read_at_all(file, other, block, kBytes, MPI_BYTE, MPI_STATUS_IGNORE));
    MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
    EXPECT_STREAM(block, kBytes, (uint64_t)left, round);
    EXPECT_STREAM(in, kLong, 103, round);
    MUST(MPI_Barrier(comm));
  }
  MUST(MPI_File_close(&file));
  free(block);
  free(out);
  free(in);
}

/// One-sided traffic beside messages.
CASE(PX7_windows_beside_messages, .ranks = 2) {
  enum { kRounds = 50 };
  int* base;
  MPI_Win window;
  MUST(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &base, &window));
  for (int round = 0; round < kRounds; ++round) {
    int in = -1;
    MPI_Request request[2] = {irecv_int(&in, my_peer, kTag), isend_int(&round, my_peer, kTag)};
    MUST(MPI_Win_fence(0, window));
    MUST(MPI_Put(&round, 1, MPI_INT, my_peer, 0, 1, MPI_INT, window));
    MUST(MPI_Win_fence(0, window));
    EXPECT_DATA(*base == round, "round %d: the window has %d", round, *base);
    MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
    EXPECT_DATA(in == round, "round %d: %d", round, in);
  }
  MUST(MPI_Win_free(&window));
}
