/* Half round trip of one message, the payload of every round verified outside the interval. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

struct ends {
  char *out, *in;
  MPI_Request send, receive;
};

static void mark_all(const struct options* o, MPI_Request send) {
  if (o->partitions == 1)
    MPI_Pready(0, send);
  else
    MPI_Pready_range(0, o->partitions - 1, send);
}

static void make(const struct options* o, struct ends* e) {
  const int peer = 1 - rank_of_this();
  e->out = malloc(o->bytes + 8);
  e->in = malloc(o->bytes + 8);
  if (strcmp(o->way, "partitioned") == 0) {
    const MPI_Count count = (MPI_Count)(o->bytes / (size_t)o->partitions);
    MPI_Psend_init(e->out, o->partitions, count, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &e->send);
    MPI_Precv_init(e->in, o->partitions, count, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &e->receive);
  } else if (strcmp(o->way, "persistent") == 0) {
    MPI_Send_init(e->out, (int)o->bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &e->send);
    MPI_Recv_init(e->in, (int)o->bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &e->receive);
  } else {
    e->send = e->receive = MPI_REQUEST_NULL;
  }
}

static void post_receive(const struct options* o, struct ends* e) {
  if (strcmp(o->way, "isend") == 0)
    MPI_Irecv(e->in, (int)o->bytes, MPI_BYTE, 1 - rank_of_this(), 1, MPI_COMM_WORLD, &e->receive);
  else
    MPI_Start(&e->receive);
}

static void send(const struct options* o, struct ends* e) {
  if (strcmp(o->way, "isend") == 0) {
    MPI_Isend(e->out, (int)o->bytes, MPI_BYTE, 1 - rank_of_this(), 1, MPI_COMM_WORLD, &e->send);
  } else {
    MPI_Start(&e->send);
    if (strcmp(o->way, "partitioned") == 0) mark_all(o, e->send);
  }
}

enum { LOOKS_MAX = 1000 };

/* What any message costs at least: a cache line that one rank writes and the other reads. */
static void measure_line(const struct options* o, struct samples* s) {
  struct news* news = share_news(0);
  const int rank = rank_of_this();
  _Atomic uint64_t *out = news->lines[rank], *in = news->lines[1 - rank];
  for (int round = -o->warmup; round < o->rounds; ++round) {
    const uint64_t word = (uint64_t)round * 0xd1342543de82ef95u + 1;
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = now_ns();
    if (rank == 0) atomic_store_explicit(out, word, memory_order_release);
    for (int looks = 0; atomic_load_explicit(in, memory_order_acquire) != word; ++looks)
      if (looks > LOOKS_MAX) sched_yield();
    if (rank == 1) atomic_store_explicit(out, word, memory_order_release);
    if (rank == 0 && round >= 0) s->values[s->count++] = (now_ns() - began) / 2;
  }
}

void measure_latency(const struct options* o, struct samples* s) {
  if (strcmp(o->way, "line") == 0) {
    measure_line(o, s);
    return;
  }
  if (strcmp(o->way, "socket") == 0 || strcmp(o->way, "asleep") == 0) {
    measure_socket(o, s);
    return;
  }
  struct ends e;
  make(o, &e);
  for (int round = -o->warmup; round < o->rounds; ++round) {
    fill(e.out, o->bytes, 0, round);
    post_receive(o, &e);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = now_ns();
    if (rank_of_this() == 0) {
      send(o, &e);
      MPI_Wait(&e.receive, MPI_STATUS_IGNORE);
      const double half = (now_ns() - began) / 2;
      if (round >= 0) s->values[s->count++] = half;
      MPI_Wait(&e.send, MPI_STATUS_IGNORE);
    } else {
      MPI_Wait(&e.receive, MPI_STATUS_IGNORE);
      send(o, &e);
      MPI_Wait(&e.send, MPI_STATUS_IGNORE);
    }
    s->wrong += wrong_words(e.in, o->bytes, round) != 0;
  }
  if (strcmp(o->way, "isend") != 0) {
    MPI_Request_free(&e.send);
    MPI_Request_free(&e.receive);
  }
  free(e.out);
  free(e.in);
}
