/* What the measurements of a pair of ranks share: options, clock, samples, payload. */
#ifndef PAIR_H
#define PAIR_H

#include <mpi.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct options {
  const char* what;
  const char* way;
  size_t bytes; /* of one message, all partitions */
  int partitions;
  int threads; /* on the sending side */
  int late_us; /* how much longer the last thread computes; bound: the first; early: all of them */
  int bound;   /* two threads end computing together, on a core each; the second one shares its
                  core with the receiver */
  int rounds;
  int warmup;
  int live;    /* keep a partitioned channel alive beside what is measured */
  int hold_us; /* early: between the first partition and the others */
};

/* Samples of one measurement, in the unit that the row names. */
struct samples {
  double* values;
  int count;
  long wrong;
};

int rank_of_this(void);
/* The calling thread stays on one core: 0 or 1, of those that it may use. */
void bind_to(int core);
/* CLOCK_MONOTONIC in nanoseconds: one clock for all processes of a host. */
double now_ns(void);
/* Takes the core, as a program that computes does. */
void compute_until(double end_ns);
/* Every 8-byte word of a round's message differs from its neighbours and from its value in other
 * rounds. */
void fill(char* buffer, size_t bytes, size_t offset, int round);
long wrong_words(const char* buffer, size_t bytes, int round);

/* In memory of both ranks: what the receiver tells without the MPI, so that a sender who waits for
 * it takes no core from those whom the round is about. */
struct news {
  _Atomic int round; /* received */
  double arrived;
  _Alignas(64) _Atomic uint64_t lines[2][8]; /* of rank 0, of rank 1 */
  char shared[];
};
/* Collective; for the rest of the program, with so many shared bytes behind it. */
struct news* share_news(size_t shared_bytes);
void tell_news(struct news* news, int round, double arrived);
void await_news(struct news* news, int round);

void measure_early(const struct options* options, struct samples* samples);
void measure_latency(const struct options* options, struct samples* samples);
void measure_exposed(const struct options* options, struct samples* samples);
/* The same; both ranks look() after the warm-up and after the last round. */
void run_exposed(const struct options* options, struct samples* samples, void (*look)(void));
void measure_one_copy(const struct options* options, struct samples* samples);
void measure_cost(const struct options* options, struct samples* samples);
void measure_socket(const struct options* options, struct samples* samples);
void count_packets(const struct options* options, struct samples* samples);
void count_doorbells(const struct options* options, struct samples* samples);
void measure_calls(const struct options* options, struct samples* samples);
void measure_messages(const struct options* options, struct samples* samples);

#endif
