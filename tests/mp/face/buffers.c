// Buffered sends by several threads at once, through a buffer with room for one message of each:
// two ranks. Before each round the peer has received all of the round before, so each message must
// fit. Rank 0 says "rank 0 ok".

#include <pthread.h>
#include <stdatomic.h>

#include "carried.h"

enum { kThreads = 4, kRounds = 300, kBytes = 100000 };

static pthread_barrier_t barrier;

static void* send_rounds(void* data) {
  static atomic_int next_tag;
  const int tag = atomic_fetch_add(&next_tag, 1);
  for (int round = 0; round < kRounds; ++round) {
    pthread_barrier_wait(&barrier);
    const int code = MPI_Bsend(data, kBytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
    expect(code == MPI_SUCCESS, "MPI_Bsend", code);
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}

static void send_by_threads(unsigned char* data) {
  const int size = kThreads * (kBytes + MPI_BSEND_OVERHEAD);
  void *const space = memory((size_t)size), *back = NULL;
  int bytes = 0;
  pthread_t threads[kThreads];
  MPI_Buffer_attach(space, size);
  pthread_barrier_init(&barrier, NULL, kThreads + 1);
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, send_rounds, data);
  for (int round = 0; round < kRounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&barrier);
  MPI_Buffer_detach(&back, &bytes);
  free(space);
}

static void receive(unsigned char* data) {
  for (int round = 0; round < kRounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int tag = 0; tag < kThreads; ++tag)
      MPI_Recv(data, kBytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(wrong_bytes(data, kBytes, 1) == 0, "wrong bytes of a message", round);
  }
}

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
  expect(level == MPI_THREAD_MULTIPLE, "no MPI_THREAD_MULTIPLE", level);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  unsigned char* const data = memory(kBytes);
  if (my_rank == 0) {
    fill(data, kBytes, 1);
    send_by_threads(data);
  } else {
    receive(data);
  }
  free(data);
  MPI_Finalize();
  printf("rank %d ok\n", my_rank);
  return 0;
}
