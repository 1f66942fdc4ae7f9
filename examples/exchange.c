/* exchange: threads of two ranks send each other many small messages, with MPI and OpenMP.
 *
 * Thread t of a rank posts a window of receives from thread t of its partner. It sends as many
 * messages, and waits for all. The calls are MPI_Irecv, MPI_Isend and MPI_Waitall; the tag is the
 * thread's number. All threads use one communicator. With --comms each, each thread has its own.
 * Most MPIs let one thread at a time into such calls.
 *
 * Checks itself: sender, thread, round and place determine each word of a message. Exit status 1 if
 * one is wrong.
 *
 *     mpiexec -n 2 ./exchange --threads 2
 */
#include <mpi.h>
#include <omp.h>
#include <stdint.h>

#include "options.h"

enum { kOne, kEach };

typedef struct {
  int threads, rounds, window, words, comms;
  int rank, ranks, partner;
  MPI_Comm *comm; /* one a thread: the same, or its own */
} problem;

/* (splitmix64, Steele et al., OOPSLA 2014) */
static uint64_t word_of(int sender, int thread, int round, int place) {
  uint64_t z = ((uint64_t)sender << 56) ^ ((uint64_t)thread << 46) ^ ((uint64_t)round << 26) ^
               (uint64_t)place;
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

/* One thread's rounds. Returns the number of wrong messages. */
static long exchange(const problem *p, int thread, int first, int end) {
  const int words = p->words, count = p->window;
  const size_t room = (size_t)count * (size_t)words;
  uint64_t *const in = malloc(room * sizeof *in), *const out = malloc(room * sizeof *out);
  MPI_Request *const requests = malloc(2 * (size_t)count * sizeof(MPI_Request));
  if (!in || !out || !requests) MPI_Abort(MPI_COMM_WORLD, 1);
  const MPI_Comm comm = p->comm[thread];
  long wrong = 0;
  for (int round = first; round < end; ++round) {
    for (int i = 0; i < count * words; ++i) {
      in[i] = 0;
      out[i] = word_of(p->rank, thread, round, i);
    }
    for (int i = 0; i < count; ++i)
      MPI_Irecv(in + i * words, words, MPI_UINT64_T, p->partner, thread, comm, &requests[i]);
    for (int i = 0; i < count; ++i)
      MPI_Isend(out + i * words, words, MPI_UINT64_T, p->partner, thread, comm,
                &requests[count + i]);
    MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < count; ++i) {
      int right = 1;
      for (int j = i * words; j < (i + 1) * words; ++j)
        right &= in[j] == word_of(p->partner, thread, round, j);
      wrong += !right;
    }
  }
  free(in);
  free(out);
  free(requests);
  return wrong;
}

/* Rounds [first, end) of all threads, from barrier to barrier. Adds to *wrong; returns seconds. */
static double run(const problem *p, int first, int end, long *wrong) {
  long found = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
#pragma omp parallel num_threads(p->threads) reduction(+ : found)
  found += exchange(p, omp_get_thread_num(), first, end);
  MPI_Barrier(MPI_COMM_WORLD);
  *wrong += found;
  return MPI_Wtime() - begin;
}

/* Prints the result on rank 0. Returns the exit status. */
static int report(const problem *p, double seconds, long wrong) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  version[strcspn(version, ",\t\r\n")] = '\0';
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  const long messages = (long)p->threads * p->window * p->rounds; /* of a rank, timed */
  if (p->rank == 0) {
    printf(
        "exchange: %s: %.1f ns per message of %zu bytes, %d threads a rank, %s, wrong data in "
        "%ld messages, over %s\n",
        wrong ? "FAILED" : "PASSED", seconds * 1e9 / (double)messages,
        (size_t)p->words * sizeof(uint64_t), p->threads,
        p->comms == kEach ? "a communicator each" : "one communicator", wrong, version);
  }
  return wrong != 0;
}

int main(int argc, char **argv) {
  problem p = {.threads = 2, .rounds = 1000, .window = 64, .words = 1};
  const option table[] = {
      OPTION_THREADS(&p.threads),
      {"rounds", kInt, &p.rounds, 1, 1 << 19, NULL, "timed rounds of each thread"},
      {"window", kInt, &p.window, 1, 1 << 12, NULL, "messages of a thread in a round"},
      {"words", kInt, &p.words, 1, 1 << 14, NULL, "words of 8 bytes in a message"},
      {"comms", kWord, &p.comms, 0, 0, "one|each", "communicators of the threads:"},
  };
  options_start(&argc, &argv, "exchange: small messages between the threads of two ranks", table,
                sizeof table / sizeof *table);
  MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
  p.partner = p.rank ^ 1;
  if (p.ranks % 2) options_refuse("an odd number of", "ranks", "pairs of ranks");
  p.comm = malloc((size_t)p.threads * sizeof *p.comm);
  if (!p.comm) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int t = 0; t < p.threads; ++t) {
    p.comm[t] = MPI_COMM_WORLD;
    if (p.comms == kEach) MPI_Comm_dup(MPI_COMM_WORLD, &p.comm[t]);
  }
  long wrong = 0;
  const int warm = 1 + p.rounds / 10;
  run(&p, 0, warm, &wrong);
  const double seconds = run(&p, warm, warm + p.rounds, &wrong);
  const int failed = report(&p, seconds, wrong);
  for (int t = 0; t < p.threads; ++t)
    if (p.comms == kEach) MPI_Comm_free(&p.comm[t]);
  free(p.comm);
  MPI_Finalize();
  return failed;
}
