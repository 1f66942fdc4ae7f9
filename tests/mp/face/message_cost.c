// The cost of an ordinary message of 8 bytes for the caller: one process, to itself. The test
// counts instructions of the functions below.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMessages = 64, kRounds = 4 };

static MPI_Request sends[kMessages], receives[kMessages];
static long from[kMessages], to[kMessages];

static void irecv(void) {
  for (int i = 0; i < kMessages; ++i)
    MPI_Irecv(&to[i], 1, MPI_LONG, 0, i, MPI_COMM_WORLD, &receives[i]);
}
static void isend(void) {
  for (int i = 0; i < kMessages; ++i)
    MPI_Isend(&from[i], 1, MPI_LONG, 0, i, MPI_COMM_WORLD, &sends[i]);
}
static void wait_of_send(void) {
  for (int i = 0; i < kMessages; ++i) MPI_Wait(&sends[i], MPI_STATUS_IGNORE);
}
static void wait_of_receive(void) {
  MPI_Status status;
  for (int i = 0; i < kMessages; ++i) MPI_Wait(&receives[i], &status);
}
static void iprobe_in_vain(void) {
  int flag;
  MPI_Status status;
  for (int i = 0; i < kMessages; ++i) MPI_Iprobe(0, kMessages, MPI_COMM_WORLD, &flag, &status);
}
static void test_in_vain(void) {
  int flag;
  MPI_Status status;
  for (int i = 0; i < kMessages; ++i) MPI_Test(&receives[0], &flag, &status);
}

// Only these are counted: not the first round, which makes requests.
__attribute__((noinline)) void cost_of_irecv(void) { irecv(); }
__attribute__((noinline)) void cost_of_isend(void) { isend(); }
__attribute__((noinline)) void cost_of_wait_of_send(void) { wait_of_send(); }
__attribute__((noinline)) void cost_of_wait_of_receive(void) { wait_of_receive(); }
__attribute__((noinline)) void cost_of_iprobe_in_vain(void) { iprobe_in_vain(); }
__attribute__((noinline)) void cost_of_test_in_vain(void) { test_in_vain(); }

typedef void Step(void);

static void all_calls(Step* post_all, Step* miss, Step* send_all, Step* look, Step* end_sends,
                      Step* end_receives) {
  post_all();
  miss();
  send_all();
  for (int i = 0, flag = 0; i < kMessages; i += flag)
    MPI_Request_get_status(receives[i], &flag, MPI_STATUS_IGNORE);
  look();
  end_sends();
  end_receives();
  for (int i = 0; i < kMessages; ++i) {
    if (to[i] != from[i]) {
      puts("wrong bytes");
      exit(1);
    }
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  for (int round = 0; round <= kRounds; ++round) {
    for (int i = 0; i < kMessages; ++i) from[i] = round * kMessages + i + 1;
    if (round == 0)
      all_calls(irecv, test_in_vain, isend, iprobe_in_vain, wait_of_send, wait_of_receive);
    else
      all_calls(cost_of_irecv, cost_of_test_in_vain, cost_of_isend, cost_of_iprobe_in_vain,
                cost_of_wait_of_send, cost_of_wait_of_receive);
  }
  puts("ok");
  return MPI_Finalize();
}
