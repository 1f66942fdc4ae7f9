/* killed sender|receiver [--forked|--prepare]: that side of a partitioned pair is killed in the
 * middle of its second round. The survivor's MPI_Wait must return an error that names the request,
 * within five seconds, and its other communication must go on. --forked: the victim has forked a
 * child that lives on and keeps its descriptors open. --prepare, of a receiver: it is killed while
 * the sender waits for its buffer, in MPIX_Pbuf_prepare, which must end with the error. Prints
 * "survivor ok" or the failure. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../survivor.h"

enum { PARTITIONS = 4, COUNT = 1 << 18, DEADLINE_S = 5 }; /* more than slots take */

static char buffer[PARTITIONS * COUNT];

static void die(void) { kill(getpid(), SIGKILL); }

/* The sender has started, and waits for a receiver that dies soon. */
static int survive_prepare(MPI_Request request) {
  int (*prepare)(MPI_Request) = NULL;
  *(void**)&prepare = dlsym(RTLD_DEFAULT, "MPIX_Pbuf_prepare");
  if (!prepare) return 1;
  const double began = MPI_Wtime();
  const int code = prepare(request);
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (code != MPI_SUCCESS) MPI_Error_string(code, text, &length);
  printf("survivor: MPIX_Pbuf_prepare after %.2f s: %s\n", MPI_Wtime() - began, text);
  return MPI_Wtime() - began > DEADLINE_S || !strstr(text, "MPIX_Pbuf_prepare") ||
         !strstr(text, "receive");
}

static int survive(MPI_Request* request, int sender) {
  double seconds = 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  if (wait_for_error(request, &seconds, text) == MPI_SUCCESS) {
    printf("survivor: the round completed although its peer is dead\n");
    return 1;
  }
  if (seconds > DEADLINE_S || !strstr(text, sender ? "send" : "receive")) return 1;
  return use_another() || MPI_Request_free(request) != MPI_SUCCESS;
}

int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int sender = rank == 0;
  const int victim = (strcmp(argv[1], "sender") == 0) == sender;
  const int prepares = argc > 2 && strcmp(argv[2], "--prepare") == 0;
  if (victim && argc > 2 && !prepares && fork() == 0) {
    sleep(8);
    _exit(0);
  }
  MPI_Request request = init_pair(sender, buffer, PARTITIONS, COUNT);
  MPI_Start(&request);
  if (sender) MPI_Pready_range(0, PARTITIONS - 1, request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  if (victim && !sender && prepares) usleep(100000); /* the sender waits */
  if (victim && !sender) die();
  MPI_Start(&request);
  const int forgotten = prepares && sender && survive_prepare(request);
  if (sender) MPI_Pready_range(0, victim ? PARTITIONS / 2 : PARTITIONS - 1, request);
  if (victim) die();
  const int failed = survive(&request, sender) || forgotten;
  printf(failed ? "survivor failed\n" : "survivor ok\n");
  fflush(stdout);
  _exit(failed);
}
