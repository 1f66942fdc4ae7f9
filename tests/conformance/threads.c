// Threads (T1 to T3): partitions of one request marked and asked for by several threads at once.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"

enum { kTag = 59, kThreads = 4 };

typedef struct Shared {
  MPI_Request request;
  unsigned char* data;
  size_t part;     ///< bytes of a partition of this side
  int partitions;  ///< of this side
  uint64_t round;
  pthread_mutex_t lock;
} Shared;

static Shared shared_open(int senders, int receivers, size_t bytes) {
  const int mine = my_rank == 0 ? senders : receivers;
  Shared s = {.data = guarded(bytes),
              .part = bytes / (size_t)mine,
              .partitions = mine,
              .lock = PTHREAD_MUTEX_INITIALIZER};
  s.request = my_rank == 0 ? psend(s.data, mine, (MPI_Count)s.part, MPI_BYTE, 1, kTag, comm)
                           : precv(s.data, mine, (MPI_Count)s.part, MPI_BYTE, 0, kTag, comm);
  return s;
}

static void shared_close(Shared* s) {
  check_guards(s->data, s->part * (size_t)s->partitions);
  drop(&s->request);
  release_guarded(s->data);
}

static void write_part(const Shared* s, int i) {
  const size_t at = (size_t)i * s->part;
  fill_part(s->data + at, at, s->part, 1, s->round);
}

static void check_part(const Shared* s, int i) {
  const size_t at = (size_t)i * s->part;
  const int64_t wrong = wrong_byte(s->data + at, at, s->part, 1, s->round);
  EXPECT_DATA(wrong < 0, "round %d: partition %d arrived, byte %lld is wrong", (int)s->round, i,
              (long long)wrong);
}

static void mark_or_ask(int thread, void* argument) {
  Shared* s = argument;
  for (int i = thread; i < s->partitions; i += kThreads) {
    if (my_rank == 0) {
      write_part(s, i);
      ready(s->request, i);
    } else {
      if (!arrives(s->request, i, 10)) {
        EXPECT(false, "round %d: partition %d does not arrive", (int)s->round, i);
        return;
      }
      check_part(s, i);
    }
  }
}

static void rounds_in_threads(int senders, int receivers, size_t bytes, int rounds,
                              void (*body)(int thread, void* shared)) {
  Shared s = shared_open(senders, receivers, bytes);
  for (int round = 1; round <= rounds; ++round) {
    s.round = (uint64_t)round;
    start(&s.request);
    in_threads(kThreads, body, &s);
    complete(&s.request);
    if (my_rank == 1) EXPECT_STREAM(s.data, bytes, 1, s.round);
  }
  shared_close(&s);
}

CASE(T1_threads_mark_and_ask, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  rounds_in_threads(16, 16, 16 * 64, 300, mark_or_ask);
  rounds_in_threads(24, 16, 48 * 1000, 50, mark_or_ask);
  rounds_in_threads(8, 8, 1 << 20, 20, mark_or_ask);
}

CASE(T1_many_partitions, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  rounds_in_threads(512, 384, 512 * 384 * 2, 10, mark_or_ask);
}

static void mark_by_range_or_list(int thread, void* argument) {
  Shared* s = argument;
  const int per = s->partitions / kThreads, first = thread * per;
  if (my_rank == 0) {
    for (int i = first; i < first + per; ++i) {
      write_part(s, i);
    }
    if (thread % 2 == 0) {
      MUST(MPI_Pready_range(first, first + per - 1, s->request));
    } else {
      int list[64];
      for (int i = 0; i < per; ++i) list[i] = first + per - 1 - i;
      MUST(MPI_Pready_list(per, list, s->request));
    }
  } else {
    for (int asked = 0; asked < s->partitions; ++asked) {  // all threads ask for all partitions
      const int i = (asked + first) % s->partitions;
      if (!arrives(s->request, i, 10)) {
        EXPECT(false, "round %d: partition %d does not arrive", (int)s->round, i);
        return;
      }
    }
  }
}

CASE(T1_ranges_lists_and_the_same_partitions, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  rounds_in_threads(64, 32, 64 * 1024, 50, mark_by_range_or_list);
}

static void own_request(int thread, void* argument) {
  (void)argument;
  enum { kBytes = 2048, kParts = 8 };
  unsigned char data[kBytes];
  for (int generation = 0; generation < 5; ++generation) {  // init and free in threads, too
    MPI_Request request =
        my_rank == 0 ? psend(data, kParts, kBytes / kParts, MPI_BYTE, 1, kTag + thread, comm)
                     : precv(data, kParts, kBytes / kParts, MPI_BYTE, 0, kTag + thread, comm);
    for (uint64_t round = 1; round <= 40; ++round) {
      if (my_rank == 0) fill(data, kBytes, (uint64_t)thread, round);
      start(&request);
      if (my_rank == 0) ready_all(request, kParts);
      if (round % 2) {
        complete(&request);
      } else {
        while (!tested(&request)) {
        }
      }
      if (my_rank == 1) EXPECT_STREAM(data, kBytes, (uint64_t)thread, round);
    }
    drop(&request);
  }
}

CASE(T1_a_request_for_each_thread, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  in_threads(kThreads, own_request, NULL);
}

static void wait_or_ask(int thread, void* argument) {
  Shared* s = argument;
  if (my_rank == 0) {
    mark_or_ask(thread, argument);
  } else if (thread == 0) {
    complete(&s->request);
  } else {  // after the completion by the other thread the request is inactive: true as well
    for (int i = s->partitions - 1; i >= 0; --i) {
      if (!arrives(s->request, i, 10)) {
        EXPECT(false, "round %d: partition %d does not arrive", (int)s->round, i);
        return;
      }
      check_part(s, i);
    }
  }
}

CASE(T2_parrived_while_another_thread_waits, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  Shared s = shared_open(8, 16, 16 * 512);
  for (int round = 1; round <= 100; ++round) {
    s.round = (uint64_t)round;
    start(&s.request);
    in_threads(my_rank == 0 ? kThreads : 2, wait_or_ask, &s);
    if (my_rank == 0) complete(&s.request);
  }
  shared_close(&s);
}

static void serialized(int thread, void* argument) {
  Shared* s = argument;
  for (int i = thread; i < s->partitions; i += kThreads) {
    if (my_rank == 0) {
      write_part(s, i);
      pthread_mutex_lock(&s->lock);
      ready(s->request, i);
      pthread_mutex_unlock(&s->lock);
      continue;
    }
    for (bool here = false; !here;) {
      pthread_mutex_lock(&s->lock);
      here = arrived(s->request, i);
      pthread_mutex_unlock(&s->lock);
    }
    check_part(s, i);
  }
}

CASE(T3_serialized_threads, .ranks = 2, .level = MPI_THREAD_SERIALIZED, .traits = kEveryLevel) {
  rounds_in_threads(16, 8, 16 * 4096, 50, serialized);
}

static void compute_part(int thread, void* argument) {
  Shared* s = argument;
  for (int i = thread; i < s->partitions; i += kThreads) {
    (my_rank == 0 ? write_part : check_part)(s, i);
  }
}

CASE(T3_funneled_threads, .ranks = 2, .level = MPI_THREAD_FUNNELED, .traits = kEveryLevel) {
  Shared s = shared_open(16, 8, 16 * 4096);
  for (int round = 1; round <= 50; ++round) {
    s.round = (uint64_t)round;
    start(&s.request);
    if (my_rank == 0) {
      in_threads(kThreads, compute_part, &s);
      ready_all(s.request, s.partitions);
    }
    complete(&s.request);
    if (my_rank == 1) in_threads(kThreads, compute_part, &s);
  }
  shared_close(&s);
}
