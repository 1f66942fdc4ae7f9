/* refused_round CASE...: ranks 2k and 2k + 1 exchange rounds both ways with the system calls of
 * CASE k refused, "CALL[,CALL...]:ERRNO:RANKS:WHEN". RANKS: all, or one (the odd rank). WHEN: early
 * (before MPI_Init), late (after it, before the odd rank's first partitioned call and after the
 * even rank's), first (the same, but the odd rank comes first). Each rank prints "case CASE rank N:
 * right", "... error TEXT", "... wrong" or "... hang". */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "refuse.h"

enum { PARTITIONS = 4, BYTES = 3000, ROUNDS = 3, LIMIT_S = 40 };

static unsigned char out[PARTITIONS * BYTES], in[PARTITIONS * BYTES];
static char title[300];
static MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};

static void say(const char* what, const char* text) {
  char line[1500];
  const int length = snprintf(line, sizeof line, "%s: %s %s\n", title, what, text);
  if (write(1, line, (size_t)length) != length) _exit(4);
}

static void on_alarm(int signal_number) {
  (void)signal_number;
  say("hang", "");
  _exit(3);
}

static int failed(int code) {
  if (code == MPI_SUCCESS) return 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  for (char* c = text; *c != '\0'; ++c)
    if (*c == '\n') *c = ' ';
  say("error", text);
  return 1;
}

static int make_requests(int peer) {
  return failed(MPI_Psend_init(out, PARTITIONS, BYTES, MPI_BYTE, peer, 3, MPI_COMM_WORLD,
                               MPI_INFO_NULL, &requests[0])) ||
         failed(MPI_Precv_init(in, PARTITIONS, BYTES, MPI_BYTE, peer, 3, MPI_COMM_WORLD,
                               MPI_INFO_NULL, &requests[1]));
}

/* @return 0 right, 1 error (printed), 2 wrong */
static int exchange(int rank, int peer) {
  for (int round = 0; round < ROUNDS; ++round) {
    memset(out, 16 * round + rank + 1, sizeof out);
    memset(in, 0xee, sizeof in);
    if (failed(MPI_Startall(2, requests))) return 1;
    for (int p = 0; p < PARTITIONS; ++p)
      if (failed(MPI_Pready(p, requests[0]))) return 1;
    for (int i = 0; i < 2; ++i)
      if (failed(MPI_Wait(&requests[i], MPI_STATUS_IGNORE))) return 1;
    for (size_t i = 0; i < sizeof in; ++i)
      if (in[i] != (unsigned char)(16 * round + peer + 1)) return 2;
  }
  return 0;
}

int main(int argc, char** argv) {
  const int rank = launched_rank(), peer = rank ^ 1;
  if (rank < 0 || 1 + rank / 2 >= argc) return 2;
  char* what = argv[1 + rank / 2];
  snprintf(title, sizeof title, "case %s rank %d", what, rank);
  char* const when = strrchr(what, ':') + 1;
  when[-1] = '\0';
  char* const who = strrchr(what, ':') + 1;
  who[-1] = '\0';
  const int error = error_of(what);
  const int is_refused = strcmp(who, "all") == 0 || (rank & 1) != 0;
  const int is_early = strcmp(when, "early") == 0, is_first = strcmp(when, "first") == 0;
  signal(SIGALRM, on_alarm);
  alarm(LIMIT_S);
  if (is_early && is_refused && refuse_calls(what, error) != 0) return 77;
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (!is_early && is_refused && refuse_calls(what, error) != 0) return 77;
  int bad = 0, token = 0, all = 0;
  const int comes_first = (rank & 1) == is_first;
  if (comes_first) bad = make_requests(peer);
  MPI_Sendrecv_replace(&token, 1, MPI_INT, peer, 1, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (!comes_first) bad = make_requests(peer);
  if (bad == 0) bad = exchange(rank, peer);
  if (bad != 1) say(bad == 0 ? "right" : "wrong", "");
  MPI_Allreduce(&bad, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (all != 0) _exit(0); /* some requests are active */
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
  MPI_Finalize();
  return 0;
}
