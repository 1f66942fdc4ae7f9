// The first thread of each process ends: before its requests are made, or after their first round.
// Another thread goes on: no end of a process. Prints `first thread ok` on rank 0.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PARTITIONS = 4, ROUNDS = 6, LENGTHS = 2 };
static const long lengths[LENGTHS] = {1000, 300000};  // by slots, by attach

static int rank, failures, ends_after_round;
static pthread_t first;
static pthread_barrier_t barrier;

static void expect(int error, int round, const char* what) {
  if (error == MPI_SUCCESS || ++failures > 20) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, text, &length);
  fprintf(stderr, "[%d] round %d: %s: %s\n", rank, round, what, text);
}

static void end_first_thread(void) {
  pthread_barrier_wait(&barrier);
  pthread_join(first, NULL);
}

static unsigned char byte_of(int source, int round, long i, long bytes) {
  return (unsigned char)(round * 7 + i / bytes * 3 + source + i);
}

static void exchange(int which, MPI_Request* requests, unsigned char* out, const unsigned char* in,
                     int round) {
  const long bytes = lengths[which], all = PARTITIONS * bytes;
  expect(MPI_Startall(2, requests), round, "Startall");
  for (int p = 0; p < PARTITIONS; ++p) {
    for (long i = p * bytes; i < (p + 1) * bytes; ++i) out[i] = byte_of(rank, round, i, bytes);
    expect(MPI_Pready(p, requests[0]), round, "Pready");
  }
  expect(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), round, "Wait of the send");
  expect(MPI_Wait(&requests[1], MPI_STATUS_IGNORE), round, "Wait of the receive");
  for (long i = 0; i < all; ++i)
    if (in[i] != byte_of(rank ^ 1, round, i, bytes)) {
      fprintf(stderr, "[%d] round %d: wrong byte at %ld\n", rank, round, i);
      ++failures;
      break;
    }
}

static void* go_on(void* argument) {
  (void)argument;
  MPI_Request requests[LENGTHS][2];
  unsigned char *out[LENGTHS], *in[LENGTHS];
  if (!ends_after_round) end_first_thread();
  for (int which = 0; which < LENGTHS; ++which) {
    out[which] = calloc(PARTITIONS, lengths[which]);
    in[which] = calloc(PARTITIONS, lengths[which]);
    expect(MPI_Psend_init(out[which], PARTITIONS, lengths[which], MPI_BYTE, rank ^ 1, which,
                          MPI_COMM_WORLD, MPI_INFO_NULL, &requests[which][0]),
           0, "Psend_init");
    expect(MPI_Precv_init(in[which], PARTITIONS, lengths[which], MPI_BYTE, rank ^ 1, which,
                          MPI_COMM_WORLD, MPI_INFO_NULL, &requests[which][1]),
           0, "Precv_init");
  }
  for (int round = 0; round < ROUNDS; ++round) {
    for (int which = 0; which < LENGTHS; ++which)
      exchange(which, requests[which], out[which], in[which], round);
    if (round == 0 && ends_after_round) {
      end_first_thread();
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
  for (int which = 0; which < LENGTHS; ++which) {
    MPI_Request_free(&requests[which][0]);
    MPI_Request_free(&requests[which][1]);
  }
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && failures == 0) printf("first thread ok\n");
  MPI_Finalize();
  exit(failures != 0);
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  ends_after_round = argc > 1 && strcmp(argv[1], "after") == 0;
  first = pthread_self();
  pthread_barrier_init(&barrier, NULL, 2);
  pthread_t other;
  pthread_create(&other, NULL, go_on, NULL);
  pthread_barrier_wait(&barrier);
  pthread_exit(NULL);
}
