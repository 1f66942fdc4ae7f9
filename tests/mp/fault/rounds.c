/* rounds rounds FILE    partitioned rounds between the two ranks (of one rank: with itself), in
 * both directions, with new requests every third time, until FILE is there; each byte is compared.
 * Prints "rank R: N rounds right". rounds close           rank 1 closes all its descriptors but the
 * MPI's after some rounds, and opens others. Both ranks' rounds fail with an error, in time: prints
 * "rank R: after N.NN s: TEXT", then "rank R is over". rounds links COUNT    opens COUNT pairs of
 * requests one after the other, each over links of its own where there are lanes enough, and makes
 * rounds over all that are open. The ranks take turns at stopping themselves (SIGSTOP) before the
 * next pair, so that the other rank waits for its link. Both stop themselves at the beginning and
 * at the end, too. Prints "rank R stops: W", with W begin, the pair's number, or end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTITIONS = 4, COUNT = 5000, LIMIT_S = 900, SOON_S = 20, LINKS_MAX = 16, ROUNDS = 100 };

static unsigned char out[PARTITIONS * COUNT], in[PARTITIONS * COUNT];
static int rank, size;

static void fail(const char* what, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (code) MPI_Error_string(code, text, &length);
  printf("rank %d: %s %s\n", rank, what, text);
  fflush(stdout);
  _exit(1);
}
#define OK(call)                       \
  do {                                 \
    const int code_ = (call);          \
    if (code_) fail(#call ":", code_); \
  } while (0)

static void open_pair(MPI_Request* pair, int tag) {
  const int peer = (rank + 1) % size;
  OK(MPI_Psend_init(out, PARTITIONS, COUNT, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_INFO_NULL,
                    &pair[0]));
  OK(MPI_Precv_init(in, PARTITIONS, COUNT, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_INFO_NULL,
                    &pair[1]));
}

/* @return an MPI error */
static int round_of(MPI_Request* pair, unsigned number, int last) {
  for (int i = 0; i < PARTITIONS * COUNT; ++i)
    out[i] = (unsigned char)(number * 7 + (unsigned)i + (unsigned)rank);
  out[0] = (unsigned char)last;
  memset(in, 0xee, sizeof in);
  int code = MPI_Startall(2, pair);
  if (!code) code = MPI_Pready_range(0, PARTITIONS - 1, pair[0]);
  MPI_Status statuses[2];
  if (!code) code = MPI_Waitall(2, pair, statuses);
  if (code == MPI_ERR_IN_STATUS)
    code = statuses[0].MPI_ERROR ? statuses[0].MPI_ERROR : statuses[1].MPI_ERROR;
  if (code) return code;
  const unsigned peer = (unsigned)((rank + 1) % size);
  for (int i = 1; i < PARTITIONS * COUNT; ++i)
    if (in[i] != (unsigned char)(number * 7 + (unsigned)i + peer)) fail("a wrong byte", 0);
  return MPI_SUCCESS;
}

static void run_rounds(const char* file) {
  MPI_Request pair[2];
  const double began = MPI_Wtime();
  unsigned number = 0;
  for (int last = 0; !last;) {
    open_pair(pair, (int)(number % 100));
    for (int i = 0; i < 3; ++i, ++number) {
      const int mine =
          rank == 0 && i == 2 && (access(file, F_OK) == 0 || MPI_Wtime() - began > LIMIT_S);
      OK(round_of(pair, number, mine));
      if (i == 2) last = rank == 0 ? mine : in[0];
    }
    OK(MPI_Request_free(&pair[0]));
    OK(MPI_Request_free(&pair[1]));
    if (number == 30) {
      printf("rank %d has begun, pid %d\n", rank, (int)getpid());
      fflush(stdout);
    }
  }
  printf("rank %d: %u rounds right\n", rank, number);
  fflush(stdout);
}

static void stop(const char* what) {
  printf("rank %d stops: %s\n", rank, what);
  fflush(stdout);
  raise(SIGSTOP);
}

static void run_links(int count) {
  static MPI_Request pairs[LINKS_MAX][2];
  unsigned number = 0;
  printf("rank %d has begun, pid %d\n", rank, (int)getpid());
  stop("begin");
  for (int opened = 0; opened < count && opened < LINKS_MAX; ++opened) {
    char text[16];
    snprintf(text, sizeof text, "%d", opened);
    if (rank != opened % 2) stop(text);
    open_pair(pairs[opened], opened);
    for (int i = 0; i < ROUNDS; ++i)
      for (int pair = opened; pair >= 0; --pair) OK(round_of(pairs[pair], number++, 0));
  }
  stop("end");
  for (int pair = 0; pair < count && pair < LINKS_MAX; ++pair) {
    OK(MPI_Request_free(&pairs[pair][0]));
    OK(MPI_Request_free(&pairs[pair][1]));
  }
  printf("rank %d: %u rounds right\n", rank, number);
  fflush(stdout);
}

/* Descriptors of an MPI's launcher stay open; so do the MPI's own files, which it finds no
 * longer. */
static void close_all(void) {
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  for (int i = 0; i < 100; ++i) (void)!open("/dev/null", O_RDWR);
}

static void run_close(void) {
  MPI_Request pair[2];
  open_pair(pair, 3);
  for (unsigned number = 0; number < 50; ++number) OK(round_of(pair, number, 0));
  if (rank == size - 1) {
    usleep(50000); /* the helper is asleep */
    close_all();
  }
  const double began = MPI_Wtime();
  int code = 0;
  for (unsigned number = 50; !code && MPI_Wtime() - began < SOON_S; ++number) {
    code = round_of(pair, number, 0);
  }
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (code) MPI_Error_string(code, text, &length);
  printf("rank %d: after %.2f s: %s\nrank %d is over\n", rank, MPI_Wtime() - began, text, rank);
  fflush(stdout);
  /* The launcher may end the rest when one has gone. */
  usleep(3000000);
  _exit(0);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (argc == 3 && strcmp(argv[1], "rounds") == 0) run_rounds(argv[2]);
  if (argc == 2 && strcmp(argv[1], "close") == 0) run_close();
  if (argc == 3 && strcmp(argv[1], "links") == 0) run_links(atoi(argv[2]));
  MPI_Finalize();
  return 0;
}
