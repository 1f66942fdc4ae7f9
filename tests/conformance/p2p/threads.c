// Threads: messages of several threads at MPI_THREAD_MULTIPLE, and of one at a time below it.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 161, kThreads = 4, kMessages = 150 };

typedef struct Shared {
  MPI_Comm on[kThreads];
  bool same_tag;
  atomic_int taken;
  atomic_int seen[kThreads * kMessages];
} Shared;

/// Thread t of rank 0 sends to thread t of rank 1, in order, messages of two sizes.
static void pairs(int t, void* argument) {
  enum { kLong = 70000 };
  Shared* shared = argument;
  const MPI_Comm on = shared->on[t];
  const int tag = shared->same_tag ? kTag : kTag + t;
  unsigned char* data = memory(kLong);
  for (int i = 0; i < kMessages && !case_failed(); ++i) {
    const size_t bytes = i % 10 == 9 ? kLong : 64;
    if (my_rank == 0) {
      fill(data, bytes, (uint64_t)t, (uint64_t)i);
      if (i % 2) {
        MUST(MPI_Send(data, (int)bytes, MPI_BYTE, 1, tag, on));
      } else {
        MPI_Request request;
        MUST(MPI_Issend(data, (int)bytes, MPI_BYTE, 1, tag, on, &request));
        complete(&request);
      }
    } else {
      MPI_Status status;
      MUST(MPI_Recv(data, kLong, MPI_BYTE, 0, tag, on, &status));
      EXPECT_STATUS(&status, 0, tag, (long long)bytes);
      EXPECT_STREAM(data, bytes, (uint64_t)t, (uint64_t)i);
    }
  }
  free(data);
}

CASE(TH1_tag_for_each_thread, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  Shared shared = {.same_tag = false};
  for (int t = 0; t < kThreads; ++t) shared.on[t] = comm;
  in_threads(kThreads, pairs, &shared);
}

CASE(TH1_communicator_for_each_thread, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  Shared shared = {.same_tag = true};
  for (int t = 0; t < kThreads; ++t) MUST(MPI_Comm_dup(comm, &shared.on[t]));
  in_threads(kThreads, pairs, &shared);
  for (int t = 0; t < kThreads; ++t) MUST(MPI_Comm_free(&shared.on[t]));
}

/// All threads of rank 1 take messages by wildcards: each message once, each sender's in order.
static void wild(int t, void* argument) {
  Shared* shared = argument;
  int next[kThreads] = {0};
  for (int i = 0; i < kMessages; ++i) {
    int message[2] = {t, i};
    if (my_rank == 0) {
      MUST(MPI_Send(message, 2, MPI_INT, 1, t, comm));
      continue;
    }
    MPI_Status status;
    MUST(MPI_Recv(message, 2, MPI_INT, t % 2 ? MPI_ANY_SOURCE : 0, MPI_ANY_TAG, comm, &status));
    REQUIRE(message[0] >= 0 && message[0] < kThreads && message[1] >= 0 && message[1] < kMessages,
            "message %d of thread %d", message[1], message[0]);
    EXPECT_STATUS(&status, 0, message[0], 8);
    EXPECT_DATA(message[1] >= next[message[0]], "thread %d: message %d after %d", message[0],
                message[1], next[message[0]] - 1);
    next[message[0]] = message[1] + 1;
    EXPECT_DATA(atomic_fetch_add(&shared->seen[message[0] * kMessages + message[1]], 1) == 0,
                "message %d of thread %d came twice", message[1], message[0]);
  }
}

CASE(TH2_wildcards_of_all_threads, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  Shared shared;
  memset(&shared, 0, sizeof(shared));
  in_threads(kThreads, wild, &shared);
  for (int i = 0; my_rank == 1 && i < kThreads * kMessages; ++i) {
    EXPECT_DATA(atomic_load(&shared.seen[i]) == 1, "message %d was lost", i);
  }
}

/// Matched probes: what one thread has taken no other gets.
static void matched(int t, void* argument) {
  Shared* shared = argument;
  for (int i = 0; my_rank == 0 && i < kMessages; ++i) {
    int message[2] = {t, i};
    MUST(MPI_Send(message, 2, MPI_INT, 1, t, comm));
  }
  while (my_rank == 1 && atomic_load(&shared->taken) < kThreads * kMessages && !case_failed()) {
    MPI_Message taken;
    MPI_Status status;
    int flag = 0, message[2];
    MUST(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &taken, &status));
    if (!flag) continue;
    atomic_fetch_add(&shared->taken, 1);
    MUST(MPI_Mrecv(message, 2, MPI_INT, &taken, MPI_STATUS_IGNORE));
    REQUIRE(message[0] == status.MPI_TAG && message[1] >= 0 && message[1] < kMessages,
            "the probe showed tag %d, the message is of thread %d", status.MPI_TAG, message[0]);
    EXPECT_DATA(atomic_fetch_add(&shared->seen[message[0] * kMessages + message[1]], 1) == 0,
                "message %d of thread %d came twice", message[1], message[0]);
  }
}

CASE(TH3_matched_probes_of_all_threads, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  Shared shared;
  memset(&shared, 0, sizeof(shared));
  in_threads(kThreads, matched, &shared);
}

/// A thread that waits for a message does not stop the others.
static void blocked(int t, void* argument) {
  (void)argument;
  if (t == 0 && my_rank == 1) {
    EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == 99, "the last message");
  } else if (t == 1) {
    for (int i = 0; i < 200; ++i) {
      if (my_rank == 0) send_int(i, 1, kTag + 1);
      if (my_rank == 0) recv_int(1, kTag + 2, MPI_STATUS_IGNORE);
      if (my_rank == 1) {
        EXPECT_DATA(recv_int(0, kTag + 1, MPI_STATUS_IGNORE) == i, "message %d", i);
        send_int(i, 0, kTag + 2);
      }
    }
    if (my_rank == 0) send_int(99, 1, kTag);
  }
}

CASE(TH4_a_blocked_thread_stops_no_other, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  in_threads(2, blocked, NULL);
}

/// A thread waits, another one sends the message from the same process.
static void to_oneself(int t, void* argument) {
  (void)argument;
  for (int i = 0; i < 100; ++i) {
    int value = i;
    if (t == 0) {
      EXPECT_DATA(recv_int(my_rank, kTag, MPI_STATUS_IGNORE) == i, "message %d", i);
    } else {
      MUST(MPI_Ssend(&value, 1, MPI_INT, my_rank, kTag, comm));
    }
  }
}

CASE(TH4_threads_of_one_process_exchange, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  in_threads(2, to_oneself, NULL);
}

typedef struct Open {
  MPI_Request request[kThreads][20];
  int value[kThreads][20];
} Open;

static void waits_for_others(int t, void* argument) {
  Open* open = argument;
  const int of = (t + 1) % kThreads;  // requests of another thread
  MUST(MPI_Waitall(20, open->request[of], MPI_STATUSES_IGNORE));
  for (int i = 0; i < 20; ++i) {
    EXPECT_DATA(open->value[of][i] == of * 20 + i, "%d of thread %d: %d", i, of,
                open->value[of][i]);
  }
}

/// Requests may be completed by another thread than the one that started them.
CASE(TH5_requests_completed_by_another_thread, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  Open open;
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < 20; ++i) {
      open.value[t][i] = my_rank == 0 ? 20 * t + i : -1;
      open.request[t][i] =
          my_rank == 0 ? isend_int(&open.value[t][i], 1, t) : irecv_int(&open.value[t][i], 0, t);
    }
  }
  in_threads(kThreads, waits_for_others, &open);
}

/// Cancels of some threads, messages of others.
static void cancels(int t, void* argument) {
  (void)argument;
  for (int i = 0; i < 100; ++i) {
    int value = -1, other = i, flag = 0;
    if (t < 2) {
      MPI_Status status;
      MPI_Request request = irecv_int(&value, my_peer, 900 + t);
      MUST(MPI_Cancel(&request));
      MUST(MPI_Wait(&request, &status));
      MUST(MPI_Test_cancelled(&status, &flag));
      EXPECT(flag && value == -1, "a receive without a message was not cancelled");
    } else {
      MPI_Request request = irecv_int(&value, my_peer, t);
      MUST(MPI_Send(&other, 1, MPI_INT, my_peer, t, comm));
      complete(&request);
      EXPECT_DATA(value == i, "message %d: %d", i, value);
    }
  }
}

CASE(TH6_cancels_beside_messages, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  in_threads(kThreads, cancels, NULL);
}

/// Order between threads of one process is that of their synchronization.
static void in_turns(int t, void* argument) {
  atomic_int* at_turn = argument;
  for (int i = t; i < 200; i += 2) {
    while (atomic_load(at_turn) != i) {
    }
    if (my_rank == 0) send_int(i, 1, i % 7);
    if (my_rank == 1) {
      const int value = recv_int(0, MPI_ANY_TAG, MPI_STATUS_IGNORE);
      EXPECT_DATA(value == i, "message %d came as number %d", value, i);
    }
    atomic_store(at_turn, i + 1);
  }
}

CASE(TH7_threads_in_turns_keep_the_order, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  atomic_int turn;
  atomic_init(&turn, 0);
  in_threads(2, in_turns, &turn);
}

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void serialized(int t, void* argument) {
  (void)argument;
  for (int i = 0; i < 100; ++i) {
    int flag = 0, value = i;
    pthread_mutex_lock(&one_at_a_time);
    MPI_Request request =
        my_rank == 0 ? isend_int(&value, 1, kTag + t) : irecv_int(&value, 0, kTag + t);
    pthread_mutex_unlock(&one_at_a_time);
    while (!flag) {
      pthread_mutex_lock(&one_at_a_time);
      MUST(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
      pthread_mutex_unlock(&one_at_a_time);
    }
    EXPECT_DATA(value == i, "thread %d, message %d: %d", t, i, value);
  }
}

CASE(TH8_serialized_threads, .ranks = 2, .level = MPI_THREAD_SERIALIZED, .traits = kEveryLevel) {
  in_threads(kThreads, serialized, NULL);
}
