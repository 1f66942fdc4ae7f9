// signals SECONDS: SIGALRM comes every millisecond from before MPI_Init to after MPI_Finalize, with
// SA_RESTART and without, while two ranks make every kind of call. Prints "rank N ok".

#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "carried.h"

enum { kLong = 700000, kTag = 4, kSpace = 1 << 20 };

static atomic_long signal_count;

static long signals_so_far(void) {
  return atomic_load_explicit(&signal_count, memory_order_relaxed);
}

static void on_alarm(int number) {
  (void)number;
  atomic_fetch_add_explicit(&signal_count, 1, memory_order_relaxed);
}

static void ring_every_ms(int flags) {
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval each = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &each, NULL);
}

static void all_calls(unsigned seed) {
  static unsigned char out[kLong], in[kLong], space[kSpace];
  const int peer = 1 - my_rank;
  MPI_Comm comm = MPI_COMM_WORLD;
  MPI_Request request[2];
  MPI_Status status;
  MPI_Message message;
  static const int kBytes[] = {0, 8, 5000, kLong};
  for (int i = 0; i < 4; ++i) swap_with(peer, kBytes[i], kTag, seed, comm);
  fill(out, kLong, seed);
  for (int i = 1; i < 4; ++i) {
    const int bytes = kBytes[i];
    memset(in, 0, (size_t)bytes);
    if (my_rank == 0) {
      MPI_Ssend(out, bytes, MPI_BYTE, peer, kTag, comm);
      MPI_Send(out, bytes, MPI_BYTE, peer, kTag, comm);
      MPI_Send_init(out, bytes, MPI_BYTE, peer, kTag, comm, &request[0]);
      MPI_Start(&request[0]);
      MPI_Wait(&request[0], &status);
      MPI_Request_free(&request[0]);
    } else {
      MPI_Probe(peer, MPI_ANY_TAG, comm, &status);
      MPI_Recv(in, bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, &status);
      expect(wrong_bytes(in, bytes, seed) == 0, "wrong bytes after a probe", bytes);
      memset(in, 0, (size_t)bytes);
      MPI_Mprobe(MPI_ANY_SOURCE, kTag, comm, &message, &status);
      MPI_Mrecv(in, bytes, MPI_BYTE, &message, &status);
      expect(wrong_bytes(in, bytes, seed) == 0, "wrong bytes after a matched probe", bytes);
      MPI_Irecv(in, bytes, MPI_BYTE, peer, kTag, comm, &request[0]);
      for (int flag = 0; !flag;) MPI_Test(&request[0], &flag, &status);
    }
    MPI_Sendrecv(out, bytes, MPI_BYTE, peer, kTag, in, bytes, MPI_BYTE, peer, kTag, comm, &status);
    expect(wrong_bytes(in, bytes, seed) == 0, "wrong bytes of MPI_Sendrecv", bytes);
  }
  MPI_Buffer_attach(space, kSpace);
  MPI_Bsend(out, 50000, MPI_BYTE, peer, kTag, comm);
  MPI_Recv(in, 50000, MPI_BYTE, peer, kTag, comm, &status);
  void* detached;
  int bytes;
  MPI_Buffer_detach(&detached, &bytes);
  MPI_Irecv(in, 8, MPI_BYTE, peer, kTag + 1, comm, &request[0]);
  MPI_Cancel(&request[0]);
  MPI_Wait(&request[0], &status);
  int sum = 0;
  MPI_Allreduce(&my_rank, &sum, 1, MPI_INT, MPI_SUM, comm);
  expect(sum == 1, "the sum of the ranks", sum);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  swap_with(peer, 100, kTag, seed, comm);
  MPI_Comm_free(&comm);
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  const double seconds = atof(argv[1]);
  ring_every_ms(0);
  start(&argc, &argv);
  long rounds = 0;
  for (int way = 0; way < 2; ++way) {
    ring_every_ms(way == 0 ? 0 : SA_RESTART);
    const long before = signals_so_far();
    int go_on = 1;
    for (const double end = MPI_Wtime() + seconds; go_on; ++rounds) {
      all_calls((unsigned)rounds);
      go_on = MPI_Wtime() < end;
      MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    expect(signals_so_far() - before > 100 * seconds, "few signals came",
           signals_so_far() - before);
  }
  MPI_Finalize();
  printf("rank %d ok: %ld rounds, %ld signals\n", my_rank, rounds, signals_so_far());
  return 0;
}
