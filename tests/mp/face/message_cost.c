// The cost of an ordinary message of 8 bytes for the caller: one process, to itself. The test
// counts instructions of the functions below.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMessages = 64, kRounds = 4 };

static MPI_Request sends[kMessages], receives[kMessages], persistent[2 * kMessages];
static MPI_Status statuses[kMessages];
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

static void waitall_of_sends(void) { MPI_Waitall(kMessages, sends, MPI_STATUSES_IGNORE); }
static void waitall_of_receives(void) { MPI_Waitall(kMessages, receives, statuses); }
static void testall_in_vain(void) {
  int flag;
  MPI_Testall(kMessages, receives, &flag, statuses);
}
static void start_of_receive(void) {
  for (int i = 0; i < kMessages; ++i) MPI_Start(&persistent[i]);
}
static void start_of_send(void) {
  for (int i = 0; i < kMessages; ++i) MPI_Start(&persistent[kMessages + i]);
}

// Only these are counted: not the first round, which makes requests.
__attribute__((noinline)) void cost_of_irecv(void) { irecv(); }
__attribute__((noinline)) void cost_of_isend(void) { isend(); }
__attribute__((noinline)) void cost_of_wait_of_send(void) { wait_of_send(); }
__attribute__((noinline)) void cost_of_wait_of_receive(void) { wait_of_receive(); }
__attribute__((noinline)) void cost_of_iprobe_in_vain(void) { iprobe_in_vain(); }
__attribute__((noinline)) void cost_of_test_in_vain(void) { test_in_vain(); }
__attribute__((noinline)) void cost_of_waitall_of_sends(void) { waitall_of_sends(); }
__attribute__((noinline)) void cost_of_waitall_of_receives(void) { waitall_of_receives(); }
__attribute__((noinline)) void cost_of_testall_in_vain(void) { testall_in_vain(); }
__attribute__((noinline)) void cost_of_start_of_receive(void) { start_of_receive(); }
__attribute__((noinline)) void cost_of_start_of_send(void) { start_of_send(); }

typedef void Step(void);

static void arrive(const MPI_Request* of) {
  for (int i = 0, flag = 0; i < kMessages; i += flag)
    MPI_Request_get_status(of[i], &flag, MPI_STATUS_IGNORE);
}
static void check(void) {
  for (int i = 0; i < kMessages; ++i) {
    if (to[i] != from[i]) {
      puts("wrong bytes");
      exit(1);
    }
    to[i] = 0;
  }
}

static void all_calls(Step* post_all, Step* miss, Step* send_all, Step* look, Step* end_sends,
                      Step* end_receives) {
  post_all();
  miss();
  send_all();
  arrive(receives);
  look();
  end_sends();
  end_receives();
  check();
}
static void all_calls_on_arrays(Step* miss, Step* end_sends, Step* end_receives) {
  irecv();
  miss();
  isend();
  arrive(receives);
  end_sends();
  end_receives();
  check();
}
static void all_calls_on_persistent(Step* start_receives, Step* start_sends) {
  start_receives();
  start_sends();
  MPI_Waitall(2 * kMessages, persistent, MPI_STATUSES_IGNORE);
  check();
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  for (int i = 0; i < kMessages; ++i) {
    MPI_Recv_init(&to[i], 1, MPI_LONG, 0, i, MPI_COMM_WORLD, &persistent[i]);
    MPI_Send_init(&from[i], 1, MPI_LONG, 0, i, MPI_COMM_WORLD, &persistent[kMessages + i]);
  }
  for (int round = 0; round <= kRounds; ++round) {
    for (int i = 0; i < kMessages; ++i) from[i] = round * kMessages + i + 1;
    if (round == 0) {
      all_calls(irecv, test_in_vain, isend, iprobe_in_vain, wait_of_send, wait_of_receive);
      all_calls_on_arrays(testall_in_vain, waitall_of_sends, waitall_of_receives);
      all_calls_on_persistent(start_of_receive, start_of_send);
    } else {
      all_calls(cost_of_irecv, cost_of_test_in_vain, cost_of_isend, cost_of_iprobe_in_vain,
                cost_of_wait_of_send, cost_of_wait_of_receive);
      all_calls_on_arrays(cost_of_testall_in_vain, cost_of_waitall_of_sends,
                          cost_of_waitall_of_receives);
      all_calls_on_persistent(cost_of_start_of_receive, cost_of_start_of_send);
    }
  }
  for (int i = 0; i < 2 * kMessages; ++i) MPI_Request_free(&persistent[i]);
  puts("ok");
  return MPI_Finalize();
}
