/* Four ways to compute with threads before a send: an OpenMP region, OpenMP barriers, an OpenMP
 * loop, pthreads. In each of ten rounds thread 1 of 2 takes longer: with OpenMP it sleeps, of the
 * pthreads it computes; then rank 0 sends to rank 1.
 * --die: rank 1 is killed after the fifth round. Prints "ok". */
#define _GNU_SOURCE
#include <mpi.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kRounds = 10, kCount = 1000 };
static double row[kCount];

static void be_late(int thread) {
  if (thread == 1) nanosleep(&(struct timespec){0, 2000000}, NULL);
}

static double used_ms(void) {
  struct timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return (double)used.tv_sec * 1e3 + (double)used.tv_nsec / 1e6;
}

static void* compute(void* thread) {
  const double until_ms = used_ms() + 2;
  while ((long)thread == 1 && used_ms() < until_ms)
    ;
  return NULL;
}

static void exchange(int rank, int tag) {
  if (rank == 0) MPI_Send(row, kCount, MPI_DOUBLE, 1, tag, MPI_COMM_WORLD);
  if (rank == 1) MPI_Recv(row, kCount, MPI_DOUBLE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  int rank, provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int round = 0; round < kRounds; ++round) {
    if (round == 5 && rank == 1 && argc > 1 && strcmp(argv[1], "--die") == 0)
      kill(getpid(), SIGKILL);
#pragma omp parallel num_threads(2)
    be_late(omp_get_thread_num());
    exchange(rank, 1);
#pragma omp parallel num_threads(2)
    {
      be_late(omp_get_thread_num());
#pragma omp barrier
#pragma omp master
      exchange(rank, 2);
#pragma omp barrier
    }
#pragma omp parallel num_threads(2)
    {
#pragma omp for schedule(static, 1)
      for (int i = 0; i < 2; ++i) be_late(i);
#pragma omp master
      exchange(rank, 4);
    }
    pthread_t threads[2];
    for (long i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, compute, (void*)i);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    exchange(rank, 3);
  }
  printf("ok\n");
  MPI_Finalize();
  return 0;
}
