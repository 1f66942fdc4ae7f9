/* What one call of ours costs above a call that does nothing of ours, both timed in the same round,
 * one after the other. A sample is the difference of the means over one round's calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
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

static void wait_for_all(const struct options* o, MPI_Request request) {
  int flag = 0;
  for (int p = 0; p < o->partitions; ++p) do
      MPI_Parrived(request, p, &flag);
    while (!flag);
}

/* An intercepted call that has nothing to do: the question after a null request (rule P2). */
static double empty_call(int calls) {
  int flag = 0;
  const double began = now_ns();
  for (int i = 0; i < calls; ++i) MPI_Parrived(MPI_REQUEST_NULL, i, &flag);
  return (now_ns() - began) / calls;
}

static double time_pready(int calls, MPI_Request request) {
  const double empty = empty_call(calls);
  const double began = now_ns();
  for (int p = 0; p < calls; ++p) MPI_Pready(p, request);
  return (now_ns() - began) / calls - empty;
}

/* Rank 0: Pready of all partitions but the last. Meanwhile the receiver sleeps in the MPI, or asks
 * all the time (contended). */
static double pready(const struct options* o, int contended, MPI_Request request) {
  const int calls = o->partitions == 1 ? 1 : o->partitions - 1;
  double cost = 0;
  if (rank_of_this() == 0) {
    cost = time_pready(calls, request);
    if (calls < o->partitions) MPI_Pready(calls, request);
  } else if (contended) {
    wait_for_all(o, request);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_of_this() != 0) wait_for_all(o, request);
  return cost;
}

/* The same, of all partitions, before the receiver has started: by attach no call copies then. */
static double marks(const struct options* o, MPI_Request* request) {
  double cost = 0;
  if (rank_of_this() == 0) {
    MPI_Start(request);
    cost = time_pready(o->partitions, *request);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_of_this() != 0) MPI_Start(request);
  return cost;
}

/* Rank 1: Parrived of arrived partitions, asked before. */
static double parrived(const struct options* o, MPI_Request request, long* wrong) {
  double cost = 0;
  if (rank_of_this() == 0) {
    MPI_Pready_range(0, o->partitions - 1, request);
  } else {
    int flag = 0;
    wait_for_all(o, request);
    const double empty = empty_call(o->partitions);
    const double began = now_ns();
    for (int p = 0; p < o->partitions; ++p) {
      MPI_Parrived(request, p, &flag);
      *wrong += !flag;
    }
    cost = (now_ns() - began) / o->partitions - empty;
  }
  double measured = 0;
  MPI_Allreduce(&cost, &measured, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return measured;
}

static double started(const struct options* o, MPI_Request* request, long* wrong) {
  MPI_Start(request);
  MPI_Barrier(MPI_COMM_WORLD);
  return strcmp(o->way, "parrived") == 0 ? parrived(o, *request, wrong)
                                         : pready(o, strcmp(o->way, "contended") == 0, *request);
}

static void partitioned_calls(const struct options* o, struct samples* s) {
  const int sender = rank_of_this() == 0;
  char* buffer = malloc(o->bytes + 8);
  MPI_Request request;
  channel(o, sender, buffer, &request);
  for (int round = -o->warmup; round < o->rounds; ++round) {
    if (sender) fill(buffer, o->bytes, 0, round);
    const double cost =
        strcmp(o->way, "marks") == 0 ? marks(o, &request) : started(o, &request, &s->wrong);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (!sender) s->wrong += wrong_words(buffer, o->bytes, round) != 0;
    if (sender && round >= 0) s->values[s->count++] = cost;
  }
  MPI_Request_free(&request);
  free(buffer);
}

/* The calls of the MPI library itself, whatever has been preloaded. */
struct calls {
  int (*isend)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
  int (*irecv)(void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
  int (*wait)(MPI_Request*, MPI_Status*);
  int (*waitall)(int, MPI_Request*, MPI_Status*);
};

static int open_libmpi(struct dl_phdr_info* info, size_t size, void* handle) {
  (void)size;
  const char* name = strrchr(info->dlpi_name, '/');
  if (!name || (strncmp(name, "/libmpi.", 8) != 0 && strncmp(name, "/libmpi_abi.", 12) != 0 &&
                strncmp(name, "/libmpich.", 10) != 0))
    return 0;
  *(void**)handle = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
  return 1;
}

static struct calls bare_calls(void) {
  void* library = NULL;
  dl_iterate_phdr(open_libmpi, &library);
  struct calls calls = {0};
  if (library) {
    *(void**)&calls.isend = dlsym(library, "MPI_Isend");
    *(void**)&calls.irecv = dlsym(library, "MPI_Irecv");
    *(void**)&calls.wait = dlsym(library, "MPI_Wait");
    *(void**)&calls.waitall = dlsym(library, "MPI_Waitall");
  }
  if (!calls.isend || !calls.irecv || !calls.wait || !calls.waitall) {
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  return calls;
}

enum { PAIRS = 32, TURNS = 20 };

/* 32 pairs of Isend and Irecv to this rank itself, each waited for alone (cost of one of the four
 * calls) or all in one Waitall (cost of one of its 64 entries, in nanoseconds). */
static double native_round(const struct calls* c, int together) {
  char out = 1, in[PAIRS];
  MPI_Request requests[2 * PAIRS];
  double cost = 0;
  for (int turn = 0; turn < TURNS; ++turn) {
    double began = now_ns();
    for (int i = 0; i < PAIRS; ++i) {
      c->irecv(&in[i], 1, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[2 * i]);
      c->isend(&out, 1, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[2 * i + 1]);
      if (!together) {
        c->wait(&requests[2 * i], MPI_STATUS_IGNORE);
        c->wait(&requests[2 * i + 1], MPI_STATUS_IGNORE);
      }
    }
    if (together) {
      began = now_ns();
      c->waitall(2 * PAIRS, requests, MPI_STATUSES_IGNORE);
    }
    cost += now_ns() - began;
  }
  return cost / TURNS / (together ? 2 * PAIRS : 4 * PAIRS);
}

static void native_calls(const struct options* o, struct samples* s, int together) {
  char* buffer = malloc(o->bytes + 8);
  MPI_Request live = MPI_REQUEST_NULL;
  if (o->live) channel(o, rank_of_this() == 0, buffer, &live);
  const struct calls bare = bare_calls();
  const struct calls called = {MPI_Isend, MPI_Irecv, MPI_Wait, MPI_Waitall};
  for (int round = -o->warmup; round < o->rounds; ++round) {
    double cost[2] = {0, 0}; /* called, bare; in the order A B B A */
    for (int turn = 0; turn < 4; ++turn) {
      const int of_bare = turn == 1 || turn == 2;
      cost[of_bare] += native_round(of_bare ? &bare : &called, together) / 2;
    }
    if (round >= 0) s->values[s->count++] = cost[0] - cost[1];
  }
  if (live != MPI_REQUEST_NULL) MPI_Request_free(&live);
  free(buffer);
}

void measure_calls(const struct options* o, struct samples* s) {
  if (strcmp(o->way, "isend") == 0 || strcmp(o->way, "waitall") == 0)
    native_calls(o, s, strcmp(o->way, "waitall") == 0);
  else
    partitioned_calls(o, s);
}
