/* In each of 20 rounds thread 1 of 2 is late: it computes for 2 ms in the first 12, then it sleeps
 * for as long. Prints "ok". */
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <time.h>

static double used_ms(void) {
  struct timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return (double)used.tv_sec * 1e3 + (double)used.tv_nsec / 1e6;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  for (int round = 0; round < 20; ++round) {
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1) {
      const double until_ms = used_ms() + 2;
      while (round < 12 && used_ms() < until_ms)
        ;
      if (round >= 12) nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
  }
  printf("ok\n");
  MPI_Finalize();
  return 0;
}
