/* Time of a message among many, or half a round trip: what bench/messages measures natively. */
#include <stdlib.h>
#include <string.h>

#include "pair.h"

enum { TURNS = 200, WARMUP = 2 }; /* turns of a sample; samples before the measured ones */

struct stream {
  size_t bytes, stride;
  int window;
  char *out, *in;
  MPI_Request* requests;
  uint64_t sent, received;
};

static size_t numbered(const struct stream* s) { return s->bytes < 8 ? s->bytes : 8; }

static void send_window(struct stream* s) {
  for (int i = 0; i < s->window; ++i, ++s->sent) {
    char* const out = s->out + (size_t)i * s->stride;
    memcpy(out, &s->sent, numbered(s));
    MPI_Isend(out, (int)s->bytes, MPI_BYTE, 1 - rank_of_this(), 1, MPI_COMM_WORLD, &s->requests[i]);
  }
  MPI_Waitall(s->window, s->requests, MPI_STATUSES_IGNORE);
}

static long receive_window(struct stream* s) {
  long wrong = 0;
  for (int i = 0; i < s->window; ++i)
    MPI_Irecv(s->in + (size_t)i * s->stride, (int)s->bytes, MPI_BYTE, 1 - rank_of_this(), 1,
              MPI_COMM_WORLD, &s->requests[i]);
  MPI_Waitall(s->window, s->requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < s->window; ++i, ++s->received)
    wrong += memcmp(s->in + (size_t)i * s->stride, &s->received, numbered(s)) != 0;
  return wrong;
}

void measure_messages(const struct options* o, struct samples* samples) {
  const int is_rate = strcmp(o->way, "rate") == 0, rank = rank_of_this();
  const int window = is_rate ? o->partitions : 1;
  const size_t bytes = o->bytes / (size_t)window;
  struct stream s = {.bytes = bytes, .stride = bytes < 8 ? 8 : bytes, .window = window};
  s.out = calloc((size_t)s.window, s.stride);
  s.in = calloc((size_t)s.window, s.stride);
  s.requests = malloc((size_t)s.window * sizeof *s.requests);
  for (int sample = -WARMUP; sample < o->rounds; ++sample) {
    const double begin = now_ns();
    for (int turn = 0; turn < TURNS; ++turn)
      for (int side = 0; side < (is_rate ? 1 : 2); ++side) {
        if (rank == side)
          send_window(&s);
        else
          samples->wrong += receive_window(&s);
        if (!is_rate) continue;
        if (rank == 0)
          MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
          MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
      }
    if (sample >= 0 && rank == 0)
      samples->values[samples->count++] = (now_ns() - begin) / (TURNS * (is_rate ? s.window : 2));
  }
  free(s.requests);
  free(s.in);
  free(s.out);
}
