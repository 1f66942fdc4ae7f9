/* What steps of a round over shared memory cost, each measured by itself and not in rounds: for
 * `larklane simulate --costs`. The sender has two threads, bound as in `exposed`: what they copy
 * they have just written, and the receiver has read it in the round before. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pair.h"

enum {
  PIECE_BYTES_MIN = 2 << 10,
  PIECE_SIZES = 5,
  TURNS = 500,
  PAUSE_US = 1000,
  SETTLE_US = 300,
  BUSY_US = 100,
  ASLEEP_US = 200,
  LEAVE_US = 10000
};
enum { SLICE_BYTES = 4 << 20, SHARED_BYTES_MIN = 32 << 10, MOVED = 16, MOVED_BYTES = 2 << 10 };
/* Whose calls a sample is of: of the sender's first thread or of the one on the receiver's core,
 * alone; of either beside the other; of the first thread and the receiver, which copy together. */
enum column {
  FIRST,
  SECOND,
  FIRST_OF_TWO,
  SECOND_OF_TWO,
  SENDER_OF_BOTH,
  RECEIVER_OF_BOTH,
  COLUMNS
};

struct pair {
  const struct options* o;
  struct news* news;
  char* buffer;
  pid_t peer;
  char* peer_buffer;
  void (*share)(struct pair*, int index); /* of a thread of the sender, in a round */
  pthread_barrier_t go, done;
  atomic_int met;
  double cost[2]; /* ns of a call, by thread */
  int round;
  int stop;
};

/* In shared memory: what each side tells the other. */
static _Atomic uint64_t* taken(struct pair* p) { return &p->news->lines[0][0]; }
static _Atomic uint64_t* left_at(struct pair* p) { return &p->news->lines[0][1]; }
static _Atomic uint64_t* called(struct pair* p) { return &p->news->lines[0][2]; }
static _Atomic uint64_t* answered(struct pair* p) { return &p->news->lines[1][0]; }

static uint64_t id_of(const struct pair* p) { return (uint64_t)(p->round + p->o->warmup + 1); }

static int turn_of(const struct pair* p) {
  const int turns = COLUMNS * PIECE_SIZES;
  return (p->round % turns + turns) % turns;
}
static enum column column_of(const struct pair* p) { return turn_of(p) / PIECE_SIZES; }
static int is_of_both(const struct pair* p) { return column_of(p) >= SENDER_OF_BOTH; }
static int is_of_two(const struct pair* p) {
  return column_of(p) == FIRST_OF_TWO || column_of(p) == SECOND_OF_TWO;
}
static size_t piece_bytes_of(const struct pair* p) {
  return (size_t)PIECE_BYTES_MIN << turn_of(p) % PIECE_SIZES;
}

static void meet(struct pair* p) {
  atomic_fetch_add(&p->met, 1);
  while (atomic_load(&p->met) < 2 * (int)id_of(p)) {
  }
}

static void attach_copy(const struct pair* p, size_t offset, size_t bytes) {
  const struct iovec ours = {p->buffer + offset, bytes};
  const struct iovec theirs = {p->peer_buffer + offset, bytes};
  const ssize_t moved = rank_of_this() == 0 ? process_vm_writev(p->peer, &ours, 1, &theirs, 1, 0)
                                            : process_vm_readv(p->peer, &ours, 1, &theirs, 1, 0);
  if (moved == (ssize_t)bytes) return;
  perror("pair: attach");
  MPI_Abort(MPI_COMM_WORLD, 5);
}

/* Piece `first`, and then the next ones that nobody has taken. @return ns of a call */
static double copy_pieces(struct pair* p, size_t first) {
  const size_t bytes = piece_bytes_of(p), count = p->o->bytes / bytes;
  const double began = now_ns();
  int calls = 0;
  for (size_t i = first; i < count; i = atomic_fetch_add(taken(p), 1), ++calls)
    attach_copy(p, i * bytes, bytes);
  return (now_ns() - began) / calls;
}

/* What thread `index` has written itself. @return ns of a call */
static double copy_half(struct pair* p, int index) {
  const size_t bytes = piece_bytes_of(p), half = p->o->bytes / 2;
  const double began = now_ns();
  for (size_t at = 0; at < half; at += bytes) attach_copy(p, (size_t)index * half + at, bytes);
  return (now_ns() - began) * (double)bytes / (double)half;
}

/* Calls too small for pieces of a shared copy are of a thread's own partitions. */
static double copy_as_sender(struct pair* p, int index) {
  if (piece_bytes_of(p) >= SHARED_BYTES_MIN)
    return copy_pieces(p, is_of_two(p) ? (size_t)index : 0);
  const double cost = copy_half(p, index);
  if (!is_of_two(p)) copy_half(p, 1 - index);
  return cost;
}

static void copy_share(struct pair* p, int index) {
  const size_t half = p->o->bytes / 2;
  fill(p->buffer, half, (size_t)index * half, p->round);
  if (index == 0) atomic_store(taken(p), is_of_both(p) || is_of_two(p) ? 2 : 1);
  meet(p);
  if (is_of_two(p)) {
    p->cost[index] = copy_as_sender(p, index);
    return;
  }
  if (index != (column_of(p) == SECOND)) return; /* the second one's core is the receiver's */
  compute_until(now_ns() + SETTLE_US * 1e3);
  if (is_of_both(p)) {
    atomic_store(called(p), id_of(p));
    while (atomic_load(answered(p)) != id_of(p)) {
    }
  }
  p->cost[index] = is_of_both(p) ? copy_pieces(p, 0) : copy_as_sender(p, index);
}

/* The second thread leaves its core to the receiver, which yields; the first keeps its own. */
static void switch_share(struct pair* p, int index) {
  meet(p);
  compute_until(now_ns() + BUSY_US * 1e3);
  if (index == 1) {
    atomic_store(left_at(p), (uint64_t)now_ns());
    return;
  }
  const double end = now_ns() + LEAVE_US * 1e3;
  while (atomic_load(answered(p)) != id_of(p) && now_ns() < end) {
  }
}

static void* run_second(void* argument) {
  struct pair* p = argument;
  bind_to(1);
  for (;;) {
    pthread_barrier_wait(&p->go);
    if (p->stop) return NULL;
    p->share(p, 1);
    pthread_barrier_wait(&p->done);
  }
}

static void both_threads(struct pair* p) {
  pthread_barrier_wait(&p->go);
  p->share(p, 0);
  pthread_barrier_wait(&p->done);
}

static void measure_copy(struct pair* p, struct samples* s) {
  const int sender = rank_of_this() == 0;
  for (p->round = -p->o->warmup; p->round < p->o->rounds; ++p->round) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (sender) {
      both_threads(p);
      atomic_store(called(p), id_of(p)); /* at the latest */
      await_news(p->news, p->round);
      const enum column column = column_of(p);
      const double cost = column == RECEIVER_OF_BOTH                    ? p->news->arrived
                          : column == SECOND || column == SECOND_OF_TWO ? p->cost[1]
                                                                        : p->cost[0];
      if (p->round >= 0) s->values[s->count++] = cost;
    } else {
      double cost = 0;
      /* Of what takes longer than a slice of time who yields gets a share all the same. */
      const int yields = is_of_both(p) || p->o->bytes < SLICE_BYTES;
      while (atomic_load(called(p)) != id_of(p))
        yields ? (void)sched_yield() : (void)usleep(ASLEEP_US);
      if (is_of_both(p)) {
        atomic_store(answered(p), id_of(p));
        cost = copy_pieces(p, 1);
      }
      tell_news(p->news, p->round, cost);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!sender) s->wrong += wrong_words(p->buffer, p->o->bytes, p->round) != 0;
  }
}

/* A flag goes to the other core and another one comes back: each goes to who writes and to who
 * reads. */
static void measure_line(struct pair* p, struct samples* s) {
  const int sender = rank_of_this() == 0;
  _Atomic uint64_t *out = sender ? called(p) : answered(p), *in = sender ? answered(p) : called(p);
  uint64_t word = 0;
  for (p->round = -p->o->warmup; p->round < p->o->rounds; ++p->round) {
    MPI_Barrier(MPI_COMM_WORLD);
    double began = 0;
    for (int turn = -1; turn < TURNS; ++turn) { /* the first one to meet */
      if (turn == 0) began = now_ns();
      ++word;
      if (sender) atomic_store_explicit(out, word, memory_order_release);
      while (atomic_load_explicit(in, memory_order_acquire) != word) {
      }
      if (!sender) atomic_store_explicit(out, word, memory_order_release);
    }
    if (sender && p->round >= 0) s->values[s->count++] = (now_ns() - began) / TURNS / 4;
  }
}

/* Pready of partitions that are groups of their own, above the call that copies one; in every other
 * round the calls alone come first. The receiver waits in the MPI. */
static double move_cost(struct pair* p, MPI_Request request) {
  double cost = 0;
  for (int part = 0; part < 2; ++part) {
    const int calls_alone = (p->round + part) % 2 == 0;
    const double began = now_ns();
    for (int i = 0; i < MOVED - 1; ++i)
      if (calls_alone)
        attach_copy(p, (size_t)i * MOVED_BYTES, MOVED_BYTES);
      else
        MPI_Pready(i, request);
    cost += calls_alone ? began - now_ns() : now_ns() - began;
  }
  return cost / (MOVED - 1);
}

/* The first Pready after a pause; in every other round the second of calls that copy. */
static double first_cost(struct pair* p, MPI_Request request) {
  const int call_alone = p->round % 2 != 0;
  compute_until(now_ns() + PAUSE_US * 1e3);
  if (call_alone) attach_copy(p, 0, MOVED_BYTES);
  const double began = now_ns();
  call_alone ? attach_copy(p, MOVED_BYTES, MOVED_BYTES) : (void)MPI_Pready(0, request);
  const double cost = now_ns() - began;
  for (int i = call_alone ? 0 : 1; i < MOVED - 1; ++i) MPI_Pready(i, request);
  return cost;
}

static void measure_move(struct pair* p, struct samples* s) {
  const int sender = rank_of_this() == 0;
  MPI_Request request;
  if (sender)
    MPI_Psend_init(p->buffer, MOVED, MOVED_BYTES, MPI_BYTE, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &request);
  else
    MPI_Precv_init(p->buffer, MOVED, MOVED_BYTES, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &request);
  for (p->round = -p->o->warmup; p->round < p->o->rounds; ++p->round) {
    if (sender) fill(p->buffer, MOVED * MOVED_BYTES, 0, p->round);
    MPI_Start(&request);
    MPI_Barrier(MPI_COMM_WORLD);
    const int first = strcmp(p->o->way, "first") == 0;
    const double cost = !sender ? 0 : first ? first_cost(p, request) : move_cost(p, request);
    if (sender) MPI_Pready(MOVED - 1, request);
    if (sender && p->round >= 0) s->values[s->count++] = cost;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (!sender) s->wrong += wrong_words(p->buffer, MOVED * MOVED_BYTES, p->round) != 0;
  }
  MPI_Request_free(&request);
}

static void measure_switch(struct pair* p, struct samples* s) {
  const int sender = rank_of_this() == 0;
  for (p->round = -p->o->warmup; p->round < p->o->rounds; ++p->round) {
    if (sender) atomic_store(left_at(p), 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (sender) {
      both_threads(p);
      await_news(p->news, p->round);
      if (p->round >= 0) s->values[s->count++] = p->news->arrived;
    } else {
      double now = 0, left = 0;
      for (;;) {
        now = now_ns();
        left = (double)atomic_load(left_at(p));
        if (left != 0 && now > left) break;
        sched_yield();
      }
      atomic_store(answered(p), id_of(p));
      tell_news(p->news, p->round, now - left);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/* A wait polls, lets the MPI progress and yields; a test does the first two. */
static void measure_turn(struct pair* p, struct samples* s) {
  const int sender = rank_of_this() == 0;
  MPI_Request request;
  if (sender)
    MPI_Psend_init(p->buffer, 1, (MPI_Count)p->o->bytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &request);
  else
    MPI_Precv_init(p->buffer, 1, (MPI_Count)p->o->bytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &request);
  MPI_Start(&request);
  MPI_Barrier(MPI_COMM_WORLD);
  for (p->round = -p->o->warmup; p->round < p->o->rounds; ++p->round) {
    if (sender) {
      await_news(p->news, p->round);
      if (p->round >= 0) s->values[s->count++] = p->news->arrived;
      atomic_store(called(p), id_of(p));
    } else {
      const double began = now_ns();
      for (int turn = 0, flag = 0; turn < TURNS; ++turn) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        sched_yield();
      }
      tell_news(p->news, p->round, (now_ns() - began) / TURNS);
      while (atomic_load(called(p)) != id_of(p)) sched_yield();
    }
  }
  if (sender) MPI_Pready(0, request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Request_free(&request);
}

static void tell_places(struct pair* p) {
  const int peer = 1 - rank_of_this();
  uint64_t ours[2] = {(uint64_t)getpid(), (uint64_t)(uintptr_t)p->buffer}, theirs[2];
  MPI_Sendrecv(ours, 2, MPI_UINT64_T, peer, 5, theirs, 2, MPI_UINT64_T, peer, 5, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  p->peer = (pid_t)theirs[0];
  p->peer_buffer = (char*)(uintptr_t)theirs[1];
}

/* Those that take a second thread of the sender. */
static void with_second_thread(struct pair* p, struct samples* s) {
  const int sender = rank_of_this() == 0;
  pthread_barrier_init(&p->go, NULL, 2);
  pthread_barrier_init(&p->done, NULL, 2);
  pthread_t second;
  if (sender) pthread_create(&second, NULL, run_second, p);
  bind_to(sender ? 0 : 1);
  p->share == copy_share ? measure_copy(p, s) : measure_switch(p, s);
  p->stop = 1;
  if (!sender) return;
  pthread_barrier_wait(&p->go);
  pthread_join(second, NULL);
}

void measure_cost(const struct options* o, struct samples* s) {
  const size_t least = (size_t)PIECE_BYTES_MIN << PIECE_SIZES;
  if (o->bytes % least != 0) {
    fprintf(stderr, "pair: cost: the bytes must be a multiple of %zu\n", least);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  struct pair p = {.o = o, .news = share_news(0), .buffer = malloc(o->bytes + 8)};
  memset(p.buffer, 0, o->bytes);
  tell_places(&p);
  if (strcmp(o->way, "copy") == 0 || strcmp(o->way, "switch") == 0) {
    p.share = strcmp(o->way, "copy") == 0 ? copy_share : switch_share;
    with_second_thread(&p, s);
  } else {
    bind_to(rank_of_this() == 0 ? 0 : 1);
    if (strcmp(o->way, "turn") == 0)
      measure_turn(&p, s);
    else if (strcmp(o->way, "move") == 0 || strcmp(o->way, "first") == 0)
      measure_move(&p, s);
    else
      measure_line(&p, s);
  }
  free(p.buffer);
}
