/* What an exposed round gives an RDMA device to do: N rounds, less N barriers. A retransmitted
 * packet is one more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pair.h"

enum { SETTLE_US = 100000 }; /* until what is on its way is acknowledged */

/* Packets that the devices of this host have sent: of Soft-RoCE, or of others' ports. */
static long packets_sent(void) {
  static const char* const patterns[] = {
      "/sys/class/infiniband/*/ports/*/hw_counters/sent_pkts",
      "/sys/class/infiniband/*/ports/*/counters/port_xmit_packets"};
  long total = -1;
  for (int kind = 0; kind < 2 && total < 0; ++kind) {
    glob_t found;
    if (glob(patterns[kind], 0, NULL, &found) != 0) continue;
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      FILE* file = fopen(found.gl_pathv[i], "r");
      long count;
      if (file && fscanf(file, "%ld", &count) == 1) total = (total < 0 ? 0 : total) + count;
      if (file) fclose(file);
    }
    globfree(&found);
  }
  return rank_of_this() == 0 ? total : 0; /* both ranks' */
}

static long rung_here(void) {
  long (*const rung)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "doorbells_rung");
  return rung ? rung() : -1;
}

static long total_of(long (*count)(void)) {
  MPI_Barrier(MPI_COMM_WORLD);
  usleep(SETTLE_US);
  const long own = count();
  if (own < 0) {
    fprintf(stderr, "pair: nothing here counts that\n");
    MPI_Abort(MPI_COMM_WORLD, 7);
  }
  long total;
  MPI_Allreduce(&own, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  usleep(SETTLE_US);
  return total;
}

static long (*counted)(void);
static long totals[2];
static int looks;

static void look(void) { totals[looks++] = total_of(counted); }

/* One request's rounds after its warm-up: what it learns it has learned. */
static void count_rounds(const struct options* o, struct samples* s, long (*count)(void)) {
  counted = count;
  looks = 0;
  struct samples rounds = {calloc((size_t)o->rounds, sizeof(double)), 0, 0};
  run_exposed(o, &rounds, look);
  free(rounds.values);
  s->wrong += rounds.wrong;
  const long before = total_of(count);
  for (int round = 0; round < o->rounds; ++round) MPI_Barrier(MPI_COMM_WORLD);
  const long barriers = total_of(count) - before;
  if (rank_of_this() == 0)
    s->values[s->count++] = (double)(totals[1] - totals[0] - barriers) / o->rounds;
}

void count_packets(const struct options* o, struct samples* s) { count_rounds(o, s, packets_sent); }

void count_doorbells(const struct options* o, struct samples* s) { count_rounds(o, s, rung_here); }
