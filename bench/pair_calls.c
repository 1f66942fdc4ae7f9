/* What one call costs the thread that makes it. A sample is the mean over one round's calls. */
#include <stdlib.h>
#include <string.h>

#include "pair.h"

static void channel(const struct options* o, int sender, char* buffer, MPI_Request* request) {
  const MPI_Count count = (MPI_Count)(o->bytes / (size_t)o->partitions);
  if (sender)
    MPI_Psend_init(buffer, o->partitions, count, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_INFO_NULL,
                   request);
  else
    MPI_Precv_init(buffer, o->partitions, count, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_INFO_NULL,
                   request);
}

/* Pready of all partitions but the last on rank 0; Parrived of arrived partitions, asked before, on
 * rank 1. */
static void partitioned_calls(const struct options* o, struct samples* s, int arrived) {
  const int sender = rank_of_this() == 0;
  char* buffer = malloc(o->bytes + 8);
  MPI_Request request;
  channel(o, sender, buffer, &request);
  const int calls = arrived || o->partitions == 1 ? o->partitions : o->partitions - 1;
  for (int round = -o->warmup; round < o->rounds; ++round) {
    double cost = 0;
    if (sender) fill(buffer, o->bytes, 0, round);
    MPI_Start(&request);
    MPI_Barrier(MPI_COMM_WORLD);
    if (sender) {
      const double began = now_ns();
      for (int p = 0; p < calls; ++p) MPI_Pready(p, request);
      cost = (now_ns() - began) / calls;
      if (calls < o->partitions) MPI_Pready(o->partitions - 1, request);
    } else {
      int flag = 0;
      for (int p = 0; p < o->partitions; ++p) do
          MPI_Parrived(request, p, &flag);
        while (!flag);
      const double began = now_ns();
      for (int p = 0; p < calls; ++p) {
        MPI_Parrived(request, p, &flag);
        s->wrong += !flag;
      }
      cost = (now_ns() - began) / calls;
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (!sender) s->wrong += wrong_words(buffer, o->bytes, round) != 0;
    double measured = cost;
    if (arrived)
      MPI_Sendrecv(&cost, 1, MPI_DOUBLE, 1 - rank_of_this(), 3, &measured, 1, MPI_DOUBLE,
                   1 - rank_of_this(), 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (sender && round >= 0) s->values[s->count++] = measured;
  }
  MPI_Request_free(&request);
  free(buffer);
}

/* Native calls to this rank itself: 32 pairs of Isend and Irecv, each waited for alone or all in
 * one Waitall. */
static void native_calls(const struct options* o, struct samples* s, int together) {
  enum { PAIRS = 32 };
  char* buffer = malloc(o->bytes + 8);
  MPI_Request live = MPI_REQUEST_NULL;
  if (o->live) channel(o, rank_of_this() == 0, buffer, &live);
  char out = 1, in[PAIRS];
  MPI_Request requests[2 * PAIRS];
  for (int round = -o->warmup; round < o->rounds; ++round) {
    const double began = now_ns();
    for (int i = 0; i < PAIRS; ++i) {
      MPI_Irecv(&in[i], 1, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[2 * i]);
      MPI_Isend(&out, 1, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[2 * i + 1]);
      if (!together) {
        MPI_Wait(&requests[2 * i], MPI_STATUS_IGNORE);
        MPI_Wait(&requests[2 * i + 1], MPI_STATUS_IGNORE);
      }
    }
    if (together) MPI_Waitall(2 * PAIRS, requests, MPI_STATUSES_IGNORE);
    const double cost = (now_ns() - began) / (together ? 2 * PAIRS : PAIRS);
    if (round >= 0) s->values[s->count++] = cost;
  }
  if (live != MPI_REQUEST_NULL) MPI_Request_free(&live);
  free(buffer);
}

/* A call that nobody intercepts. */
static void bare_calls(const struct options* o, struct samples* s) {
  enum { CALLS = 1000 };
  for (int round = -o->warmup; round < o->rounds; ++round) {
    int rank;
    const double began = now_ns();
    for (int i = 0; i < CALLS; ++i) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (round >= 0) s->values[s->count++] = (now_ns() - began) / CALLS;
  }
}

void measure_calls(const struct options* o, struct samples* s) {
  if (strcmp(o->way, "pready") == 0)
    partitioned_calls(o, s, 0);
  else if (strcmp(o->way, "parrived") == 0)
    partitioned_calls(o, s, 1);
  else if (strcmp(o->way, "isend") == 0)
    native_calls(o, s, 0);
  else if (strcmp(o->way, "waitall") == 0)
    native_calls(o, s, 1);
  else
    bare_calls(o, s);
}
