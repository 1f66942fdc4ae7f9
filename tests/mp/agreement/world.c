/* A program that initialises MPI, and ends.
 *
 *   world             a barrier, then MPI_Finalize
 *   world multiple    likewise, at MPI_THREAD_MULTIPLE
 *   world leave       ends without MPI_Finalize, since another rank is dead, after the living ones
 * have decided world times       rank 0 prints the slowest rank's time in MPI_Init, in microseconds
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(int argc, char** argv) {
  const double begin = now_us();
  if (argc > 1 && strcmp(argv[1], "multiple") == 0) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  } else {
    MPI_Init(&argc, &argv);
  }
  const double own = now_us() - begin;
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("rank %d initialised\n", rank);
  fflush(stdout);
  if (argc > 1 && strcmp(argv[1], "leave") == 0) {
    sleep(2);
    _exit(0);
  }
  double most = 0;
  MPI_Reduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (argc > 1 && strcmp(argv[1], "times") == 0 && rank == 0) printf("init_us %.0f\n", most);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
