/* Exposed time: from the moment when the last of all threads has its part ready to the moment when
 * the receiver has everything. What a program with one send after the join would call the time of
 * its communication. Pready's own cost is inside. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

enum { TAG = 4 };

struct team {
  const struct options* o;
  char* buffer;
  MPI_Request request; /* partitioned */
  MPI_Comm comm;
  pthread_barrier_t go, done;
  int round;
  double* ready;     /* by thread */
  atomic_int filled; /* threads, of all rounds */
  int stop;
};

struct member {
  struct team* team;
  int index;
};

/* Until both threads have filled their part in this round. */
static void meet(struct team* t) {
  const int both = (t->round + t->o->warmup + 1) * 2;
  atomic_fetch_add(&t->filled, 1);
  while (atomic_load(&t->filled) < both) {
  }
}

/* One thread's share of a round: its part becomes ready, and leaves if this way sends early. */
static void share(struct team* t, int index) {
  const struct options* o = t->o;
  const size_t bytes = o->bytes / (size_t)o->threads;
  fill(t->buffer, bytes, (size_t)index * bytes, t->round);
  const int late = index == (o->bound ? 0 : o->threads - 1);
  if (o->bound) meet(t);
  if (late) compute_until(now_ns() + o->late_us * 1e3);
  t->ready[index] = now_ns();
  if (strcmp(o->way, "partitioned") == 0) {
    const int each = o->partitions / o->threads;
    for (int p = index * each; p < (index + 1) * each; ++p) MPI_Pready(p, t->request);
  } else if (strcmp(o->way, "threads") == 0) {
    MPI_Send(t->buffer + (size_t)index * bytes, (int)bytes, MPI_BYTE, 1, TAG + index, t->comm);
  }
}

static void* run_member(void* argument) {
  struct member* m = argument;
  if (m->team->o->bound) bind_to(1);
  for (;;) {
    pthread_barrier_wait(&m->team->go);
    if (m->team->stop) return NULL;
    share(m->team, m->index);
    pthread_barrier_wait(&m->team->done);
  }
}

static void sender_round(struct team* t) {
  const struct options* o = t->o;
  if (strcmp(o->way, "partitioned") == 0) MPI_Start(&t->request);
  MPI_Barrier(MPI_COMM_WORLD);
  pthread_barrier_wait(&t->go);
  share(t, 0);
  pthread_barrier_wait(&t->done);
  if (strcmp(o->way, "join") == 0) MPI_Send(t->buffer, (int)o->bytes, MPI_BYTE, 1, TAG, t->comm);
  if (strcmp(o->way, "persistent") == 0) MPI_Start(&t->request);
  if (t->request != MPI_REQUEST_NULL) MPI_Wait(&t->request, MPI_STATUS_IGNORE);
}

static void receiver_round(struct team* t, MPI_Request* parts) {
  const struct options* o = t->o;
  const int by_threads = strcmp(o->way, "threads") == 0;
  const size_t bytes = o->bytes / (size_t)o->threads;
  if (t->request != MPI_REQUEST_NULL)
    MPI_Start(&t->request);
  else if (by_threads)
    for (int i = 0; i < o->threads; ++i)
      MPI_Irecv(t->buffer + (size_t)i * bytes, (int)bytes, MPI_BYTE, 0, TAG + i, t->comm,
                &parts[i]);
  else
    MPI_Irecv(t->buffer, (int)o->bytes, MPI_BYTE, 0, TAG, t->comm, &parts[0]);
  MPI_Barrier(MPI_COMM_WORLD);
  if (t->request != MPI_REQUEST_NULL)
    MPI_Wait(&t->request, MPI_STATUS_IGNORE);
  else
    MPI_Waitall(by_threads ? o->threads : 1, parts, MPI_STATUSES_IGNORE);
}

static void make(struct team* t, int sender) {
  const struct options* o = t->o;
  const MPI_Count count = (MPI_Count)(o->bytes / (size_t)o->partitions);
  t->request = MPI_REQUEST_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &t->comm);
  if (strcmp(o->way, "partitioned") == 0) {
    if (sender)
      MPI_Psend_init(t->buffer, o->partitions, count, MPI_BYTE, 1, TAG, t->comm, MPI_INFO_NULL,
                     &t->request);
    else
      MPI_Precv_init(t->buffer, o->partitions, count, MPI_BYTE, 0, TAG, t->comm, MPI_INFO_NULL,
                     &t->request);
  } else if (strcmp(o->way, "persistent") == 0) {
    if (sender)
      MPI_Send_init(t->buffer, (int)o->bytes, MPI_BYTE, 1, TAG, t->comm, &t->request);
    else
      MPI_Recv_init(t->buffer, (int)o->bytes, MPI_BYTE, 0, TAG, t->comm, &t->request);
  }
}

static double last_ready(const struct team* t) {
  double last = t->ready[0];
  for (int i = 1; i < t->o->threads; ++i) last = t->ready[i] > last ? t->ready[i] : last;
  return last;
}

/* What the last partition costs at least where buffers are not shared: one copy of it between two
 * cores that do nothing else. `push`: by the sender into the receiver's buffer, `pull`: by the
 * receiver out of the sender's. No MPI, no other partitions, no waiting for a core. */
void measure_one_copy(const struct options* o, struct samples* s) {
  const int sender = rank_of_this() == 0, push = strcmp(o->way, "push") == 0;
  const size_t bytes = o->bytes / (size_t)o->partitions;
  struct news* news = share_news(bytes);
  char* own = malloc(bytes + 8);
  memset(own, 0, bytes);
  for (int round = -o->warmup; round < o->rounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (sender) {
      fill(push ? own : news->shared, bytes, 0, round);
      const double ready = now_ns();
      if (push) memcpy(news->shared, own, bytes);
      atomic_store(&news->lines[0][0], (uint64_t)(round + o->warmup + 1));
      await_news(news, round);
      if (round >= 0) s->values[s->count++] = news->arrived - ready;
    } else {
      while (atomic_load(&news->lines[0][0]) != (uint64_t)(round + o->warmup + 1)) sched_yield();
      if (!push) memcpy(own, news->shared, bytes);
      const double arrived = now_ns();
      s->wrong += wrong_words(push ? news->shared : own, bytes, round) != 0;
      tell_news(news, round, arrived);
    }
  }
  free(own);
}

void measure_exposed(const struct options* o, struct samples* s) { run_exposed(o, s, NULL); }

void run_exposed(const struct options* o, struct samples* s, void (*look)(void)) {
  const int sender = rank_of_this() == 0;
  struct team t = {
      .o = o, .buffer = malloc(o->bytes + 8), .ready = calloc((size_t)o->threads, sizeof(double))};
  struct news* news = share_news(0);
  struct member* members = calloc((size_t)o->threads, sizeof *members);
  pthread_t* threads = calloc((size_t)o->threads, sizeof *threads);
  MPI_Request* parts = calloc((size_t)o->threads, sizeof *parts);
  memset(t.buffer, 0, o->bytes);
  make(&t, sender);
  pthread_barrier_init(&t.go, NULL, (unsigned)o->threads);
  pthread_barrier_init(&t.done, NULL, (unsigned)o->threads);
  for (int i = 1; sender && i < o->threads; ++i) {
    members[i] = (struct member){&t, i};
    pthread_create(&threads[i], NULL, run_member, &members[i]);
  }
  if (o->bound) bind_to(sender ? 0 : 1);
  for (int round = -o->warmup; round < o->rounds; ++round) {
    t.round = round;
    if (look && round == 0) look();
    if (sender) {
      sender_round(&t);
      await_news(news, round);
      const double exposed = news->arrived - last_ready(&t);
      if (round >= 0) s->values[s->count++] = exposed;
      s->wrong += exposed < 0; /* complete before its last part was ready */
    } else {
      receiver_round(&t, parts);
      tell_news(news, round, now_ns());
      s->wrong += wrong_words(t.buffer, o->bytes, round) != 0;
    }
  }
  if (look) look();
  t.stop = 1;
  if (sender && o->threads > 1) pthread_barrier_wait(&t.go);
  for (int i = 1; sender && i < o->threads; ++i) pthread_join(threads[i], NULL);
  if (t.request != MPI_REQUEST_NULL) MPI_Request_free(&t.request);
  MPI_Comm_free(&t.comm);
  free(t.ready);
  free(parts);
  free(threads);
  free(members);
  free(t.buffer);
}
