// Partitioned pairs between hosts: `pairs MODE FOLDER`. FOLDER is seen from both hosts: ranks tell
// each other there what nobody may need a call of the MPI for. Each rank prints `ok` at its end.
//   early  each partition arrives while the sender has not marked the next one
//   pull   the sender marks all, leaves the MPI, and the receiver starts and completes meanwhile
//   all    all ranks with all, one round
//   mixed  the same; and a message to each rank that it takes with wildcards
//   lost   rounds between neighbours, on one host and across, until a peer is lost; those with
//          other peers go on
//   silent across hosts a round stays half marked while both sides wait, until the way is lost;
//          rounds on one host go on
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kPartitions = 8, kPartitionBytes = 20000, kBytes = kPartitions * kPartitionBytes };
enum { kRoundsAfter = 50 };
static const double kPatienceSeconds = 80;

static int rank, ranks;
static const char* folder;

static void fail(const char* format, ...) {
  va_list values;
  va_start(values, format);
  printf("rank %d: ", rank);
  vprintf(format, values);
  va_end(values);
  printf("\n");
  fflush(stdout);
  _exit(1);
}

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL); }

static void path_of(char path[300], const char* what, int number) {
  snprintf(path, 300, "%s/%s.%d", folder, what, number);
}

static void tell(const char* what, int number) {
  char path[300];
  path_of(path, what, number);
  if (close(open(path, O_CREAT | O_WRONLY, 0600)) != 0) fail("%s: %s", path, strerror(errno));
}

static int is_told(const char* what, int number) {
  char path[300];
  path_of(path, what, number);
  return access(path, F_OK) == 0;
}

// Outside of the MPI.
static void wait_to_be_told(const char* what, int number) {
  const double end = now_s() + kPatienceSeconds;
  while (!is_told(what, number)) {
    if (now_s() > end) fail("nobody says: %s %d", what, number);
    nap();
  }
}

static unsigned char byte_of(int stream, int round, int at) {
  return (unsigned char)(stream * 37 + round * 11 + at + at / 251);
}

static void fill(unsigned char* buffer, int stream, int round) {
  for (int at = 0; at < kBytes; ++at) buffer[at] = byte_of(stream, round, at);
}

static void check(const unsigned char* buffer, int stream, int round, int bytes) {
  for (int at = 0; at < bytes; ++at) {
    if (buffer[at] != byte_of(stream, round, at))
      fail("stream %d, round %d: byte %d is wrong", stream, round, at);
  }
}

static void good(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  MPI_Error_string(code, text, &length);
  fail("%s: %s", what, text);
}

static MPI_Request init(int sends, unsigned char* buffer, int peer, int tag) {
  MPI_Request request;
  const int code = sends ? MPI_Psend_init(buffer, kPartitions, kPartitionBytes, MPI_BYTE, peer, tag,
                                          MPI_COMM_WORLD, MPI_INFO_NULL, &request)
                         : MPI_Precv_init(buffer, kPartitions, kPartitionBytes, MPI_BYTE, peer, tag,
                                          MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  good(code, sends ? "Psend_init" : "Precv_init");
  return request;
}

static void early(unsigned char* buffer) {
  const int is_sender = rank == 0;
  MPI_Request request = is_sender ? init(1, buffer, 1, 1) : init(0, buffer, 0, 1);
  for (int round = 0; round < 3; ++round) {
    if (is_sender) fill(buffer, 1, round);
    good(MPI_Start(&request), "Start");
    for (int partition = 0; partition < kPartitions; ++partition) {
      const int step = round * kPartitions + partition;
      if (is_sender) {
        good(MPI_Pready(partition, request), "Pready");
        wait_to_be_told("arrived", step);
        continue;
      }
      const double end = now_s() + kPatienceSeconds;
      for (int arrived = 0; !arrived;) {
        good(MPI_Parrived(request, partition, &arrived), "Parrived");
        if (now_s() > end) fail("round %d: partition %d does not arrive", round, partition);
      }
      check(buffer, 1, round, (partition + 1) * kPartitionBytes);
      tell("arrived", step);
    }
    good(MPI_Wait(&request, MPI_STATUS_IGNORE), "Wait");
  }
  good(MPI_Request_free(&request), "Request_free");
}

static void pull(unsigned char* buffer) {
  const int is_sender = rank == 0;
  MPI_Request request = is_sender ? init(1, buffer, 1, 1) : init(0, buffer, 0, 1);
  // One round that nobody hurries: then both have heard of each other.
  for (int round = 0; round < 4; ++round) {
    if (is_sender) {
      fill(buffer, 1, round);
      good(MPI_Start(&request), "Start");
      good(MPI_Pready_range(0, kPartitions - 1, request), "Pready_range");
      if (round > 0) {
        tell("marked", round);
        wait_to_be_told("received", round);
      }
      good(MPI_Wait(&request, MPI_STATUS_IGNORE), "Wait");
      continue;
    }
    if (round > 0) wait_to_be_told("marked", round);
    good(MPI_Start(&request), "Start");
    good(MPI_Wait(&request, MPI_STATUS_IGNORE), "Wait");
    check(buffer, 1, round, kBytes);
    tell("received", round);
  }
  good(MPI_Request_free(&request), "Request_free");
}

static void all_with_all(void) {
  MPI_Request* requests = malloc(2 * (size_t)ranks * sizeof *requests);
  unsigned char* buffers = calloc(2 * (size_t)ranks, kBytes);
  int count = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    unsigned char* out = buffers + (size_t)peer * 2 * kBytes;
    fill(out, rank * ranks + peer, 0);
    requests[count++] = init(1, out, peer, 3);
    requests[count++] = init(0, out + kBytes, peer, 3);
  }
  good(MPI_Startall(count, requests), "Startall");
  for (int i = 0; i < count; i += 2)
    good(MPI_Pready_range(0, kPartitions - 1, requests[i]), "Pready_range");
  good(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE), "Waitall");
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank)
      check(buffers + ((size_t)peer * 2 + 1) * kBytes, peer * ranks + rank, 0, kBytes);
  }
  for (int i = 0; i < count; ++i) good(MPI_Request_free(&requests[i]), "Request_free");
}

static void take_any(void) {
  int from = -1;
  MPI_Status status;
  good(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % ranks, 5, &from, 1, MPI_INT, MPI_ANY_SOURCE,
                    MPI_ANY_TAG, MPI_COMM_WORLD, &status),
       "Sendrecv");
  if (from != (rank + ranks - 1) % ranks || status.MPI_TAG != 5)
    fail("a message of %d, tag %d", from, status.MPI_TAG);
}

// Both directions with one peer.
typedef struct Pair {
  int peer;
  MPI_Request requests[2];
  unsigned char* buffers;
} Pair;

static Pair open_pair(int peer) {
  Pair pair = {.peer = peer, .buffers = calloc(2, kBytes)};
  pair.requests[0] = init(1, pair.buffers, peer, 4);
  pair.requests[1] = init(0, pair.buffers + kBytes, peer, 4);
  return pair;
}

// @return false: the peer is lost, which both requests say
static int is_round_whole(Pair* pair, int round) {
  fill(pair->buffers, rank * ranks + pair->peer, round);
  int codes[2] = {MPI_Start(&pair->requests[0]), MPI_Start(&pair->requests[1])};
  for (int partition = 0; codes[0] == MPI_SUCCESS && partition < kPartitions; ++partition)
    codes[0] = MPI_Pready(partition, pair->requests[0]);
  for (int i = 0; i < 2; ++i) {
    if (codes[i] == MPI_SUCCESS) codes[i] = MPI_Wait(&pair->requests[i], MPI_STATUS_IGNORE);
  }
  if (codes[0] == MPI_SUCCESS && codes[1] == MPI_SUCCESS) {
    check(pair->buffers + kBytes, pair->peer * ranks + rank, round, kBytes);
    return 1;
  }
  for (int i = 0; i < 2; ++i) {
    if (codes[i] == MPI_SUCCESS) continue;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(codes[i], text, &length);
    printf("lost: %s\n", text);
  }
  fflush(stdout);
  return 0;
}

// Who shares this host may have lost its peer one round earlier or later.
static int last_round_of_both(int round) {
  const int other = rank ^ 1;
  const double end = now_s() + kPatienceSeconds;
  while (now_s() < end) {
    for (int at = round - 1; at <= round + 1; ++at) {
      if (is_told("lost", at * 10 + other)) return at > round ? at : round;
    }
    nap();
  }
  fail("the other rank of this host has lost nobody");
  return 0;
}

// Four ranks, two on each host.
static void lost(void) {
  Pair beside = open_pair(rank ^ 1), across = open_pair((rank + 2) % 4);
  int round = 0;
  for (;; ++round) {
    if (!is_round_whole(&beside, round)) fail("the peer on this host is lost");
    if (!is_round_whole(&across, round)) break;
    if (round == 3) {
      printf("in rounds\n");
      fflush(stdout);
    }
  }
  printf("lost after %d rounds\n", round);
  fflush(stdout);
  tell("lost", round * 10 + rank);
  int end = round + kRoundsAfter;
  for (int i = round + 1; i <= end; ++i) {
    if (!is_round_whole(&beside, i)) fail("the peer on this host is lost afterwards");
    if (i == round + kRoundsAfter) end = last_round_of_both(round) + kRoundsAfter;
  }
  tell("went on", rank);
  wait_to_be_told("went on", rank ^ 1);  // who ends first takes the other one along
  printf("went on\nok\n");
  fflush(stdout);
  _exit(0);  // without the other host the MPI does not end in order
}

static double lose_while_waiting(MPI_Request* request) {
  const double begin = now_s();
  const int code = MPI_Wait(request, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS) fail("half a round is complete");
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  MPI_Error_string(code, text, &length);
  printf("lost: %s\n", text);
  return now_s() - begin;
}

// Four ranks, two on each host; 0 sends to 2.
static void silent(unsigned char* buffer) {
  Pair beside = open_pair(rank ^ 1);
  const int is_sender = rank == 0, is_across = rank % 2 == 0;
  MPI_Request across = MPI_REQUEST_NULL;
  if (is_across) across = is_sender ? init(1, buffer, 2, 6) : init(0, buffer, 0, 6);
  int round = 0;
  for (; round < 3; ++round) {
    if (!is_round_whole(&beside, round)) fail("the peer on this host is lost");
    if (!is_across) continue;
    if (is_sender) fill(buffer, 1, round);
    good(MPI_Start(&across), "Start");
    if (is_sender) good(MPI_Pready_range(0, kPartitions - 1, across), "Pready_range");
    good(MPI_Wait(&across, MPI_STATUS_IGNORE), "Wait");
    check(buffer, 1, round, kBytes);
  }
  if (is_across) {
    good(MPI_Start(&across), "Start");
    if (is_sender) good(MPI_Pready_range(0, kPartitions / 2 - 1, across), "Pready_range");
    printf("waits\n");
    fflush(stdout);
    printf("lost after %.1f s\n", lose_while_waiting(&across));
    fflush(stdout);
  }
  for (const int end = round + kRoundsAfter; round < end; ++round)
    if (!is_round_whole(&beside, round)) fail("the peer on this host is lost afterwards");
  tell("went on", rank);
  wait_to_be_told("went on", rank ^ 1);  // as in lost()
  printf("went on\nok\n");
  fflush(stdout);
  _exit(0);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 3) fail("usage: pairs early|pull|all|mixed|lost|silent FOLDER");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  folder = argv[2];
  unsigned char* buffer = calloc(1, kBytes);
  if (strcmp(argv[1], "early") == 0) early(buffer);
  if (strcmp(argv[1], "pull") == 0) pull(buffer);
  const int is_mixed = strcmp(argv[1], "mixed") == 0;
  if (is_mixed || strcmp(argv[1], "all") == 0) all_with_all();
  if (is_mixed) take_any();
  if (strcmp(argv[1], "lost") == 0) lost();
  if (strcmp(argv[1], "silent") == 0) silent(buffer);
  MPI_Finalize();
  printf("ok\n");
  return 0;
}
