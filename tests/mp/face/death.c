// death HOW [alone]: rank 1 ends by HOW while each other rank waits for it in another call.
//   HOW    kill, kill-forked (its child lives on), exit (status 3), abort
//   alone  the others wait without end: the launcher ends them
// Else each call must return an error, in time, and the others' messages go on: "rank N ok".

#include <signal.h>

#include "carried.h"

enum { kVictim = 1, kLong = 1 << 20, kTag = 5, kDeadlineS = 5 };

static unsigned char out[kLong], in[kLong];

static int wait_in_recv(void) {
  return MPI_Recv(in, 8, MPI_BYTE, kVictim, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static int wait_for_long_send(void) {
  MPI_Request request;
  int code = MPI_Isend(out, kLong, MPI_BYTE, kVictim, kTag, MPI_COMM_WORLD, &request);
  if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  return code;
}
static int wait_in_ssend(void) {
  return MPI_Ssend(out, 8, MPI_BYTE, kVictim, kTag, MPI_COMM_WORLD);
}
static int wait_in_probe(void) {
  return MPI_Probe(kVictim, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static int wait_in_mprobe(void) {
  MPI_Message message;
  return MPI_Mprobe(kVictim, MPI_ANY_TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
}
static int wait_in_sendrecv(void) {
  return MPI_Sendrecv(out, kLong, MPI_BYTE, kVictim, kTag, in, kLong, MPI_BYTE, kVictim, kTag,
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static int wait_in_waitall(void) {
  MPI_Request request[2];
  MPI_Status status[2];
  MPI_Irecv(in, 8, MPI_BYTE, kVictim, kTag, MPI_COMM_WORLD, &request[0]);
  MPI_Irecv(in + 8, 8, MPI_BYTE, my_rank, kTag, MPI_COMM_WORLD, &request[1]);
  MPI_Send(out, 8, MPI_BYTE, my_rank, kTag, MPI_COMM_WORLD);
  int code = MPI_Waitall(2, request, status);
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  if (error_class != MPI_ERR_IN_STATUS) return code;
  return status[0].MPI_ERROR;
}
static int wait_in_test(void) {
  MPI_Request request;
  int flag = 0, code = MPI_Irecv(in, 8, MPI_BYTE, kVictim, kTag, MPI_COMM_WORLD, &request);
  while (code == MPI_SUCCESS && !flag) code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
  return code;
}
/// The victim receives until its end: it dies inside a copy, or between two.
static int wait_in_a_stream(void) {
  int code = MPI_SUCCESS;
  while (code == MPI_SUCCESS)
    code = MPI_Send(out, kLong, MPI_BYTE, kVictim, kTag + 1, MPI_COMM_WORLD);
  return code;
}
/// The buffer is free once the message has no receiver any more.
static int wait_in_detach(void) {
  enum { kSpace = kLong + 4096 };
  static char space[kSpace];
  void* detached;
  int bytes;
  MPI_Buffer_attach(space, kSpace);
  MPI_Bsend(out, kLong, MPI_BYTE, kVictim, kTag, MPI_COMM_WORLD);
  MPI_Buffer_detach(&detached, &bytes);
  return wait_in_recv();
}
/// Only the launcher can end it: another rank may send.
static int wait_in_any_source(void) {
  return MPI_Recv(in, 8, MPI_BYTE, MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int (*const kWaits[])(void) = {wait_in_recv,    wait_in_ssend,     wait_for_long_send,
                                      wait_in_probe,   wait_in_mprobe,    wait_in_sendrecv,
                                      wait_in_waitall, wait_in_test,      wait_in_a_stream,
                                      wait_in_detach,  wait_in_any_source};
enum { kWaitCount = sizeof kWaits / sizeof kWaits[0] };

static void die(const char* how) {
  static unsigned char got[kLong];
  if (strcmp(how, "kill-forked") == 0 && fork() == 0) {
    sleep(4);
    _exit(0);
  }
  for (const double end = MPI_Wtime() + 0.3; MPI_Wtime() < end;)
    MPI_Recv(got, kLong, MPI_BYTE, MPI_ANY_SOURCE, kTag + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (strcmp(how, "exit") == 0) exit(3);
  if (strcmp(how, "abort") == 0) abort();
  kill(getpid(), SIGKILL);
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const int is_alone = argc > 2;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);
  if (my_rank == kVictim) die(argv[1]);
  const int place = my_rank - (my_rank > kVictim);
  const double began = MPI_Wtime();
  int code = kWaits[place]();
  if (is_alone) code = wait_in_any_source();
  char text[MPI_MAX_ERROR_STRING] = "no error";
  int length = 0;
  if (code != MPI_SUCCESS) MPI_Error_string(code, text, &length);
  printf("rank %d of way %d after %.2f s: %s\n", my_rank, place, MPI_Wtime() - began, text);
  expect(code != MPI_SUCCESS && strstr(text, "rank 1") != NULL, "no error that names rank 1", code);
  expect(MPI_Wtime() - began < kDeadlineS, "the error is late", place);
  for (int again = 0; again < kWaitCount - 1; ++again)
    expect(kWaits[again]() != MPI_SUCCESS, "a later call to the dead rank succeeds", again);
  // The living go on: pairs of neighbours, without rank 1 and the last place.
  if (place < (kWaitCount - 1) / 2 * 2) {
    const int other = place ^ 1;
    swap_with(other + (other >= kVictim), kLong, kTag + 2, 9, MPI_COMM_WORLD);
  }
  printf("rank %d ok\n", my_rank);
  fflush(stdout);
  sleep(1);  // the first end lets the launcher learn of the death
  _exit(0);
}
