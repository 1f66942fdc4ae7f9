/* Measurements of a pair of ranks: plain MPI-4, native or under Larklane.
 *
 * The last line on standard output is {"samples": [...], "wrong": n}: every round's figure, and the
 * rounds whose payload or completion was wrong. Ranks 0 and 1 take part; warm-up rounds are not
 * reported.
 */
#define _GNU_SOURCE
#include "pair.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: pair WHAT [options]\n"
    "  latency   half round trip, ns           --way partitioned | persistent | isend | line\n"
    "  exposed   last arrival - last ready, ns --way partitioned | persistent | join | threads\n"
    "  one-copy  the same of one partition, ns --way push | pull, no MPI\n"
    "  early     ns from the first of the partitions being ready to its arrival, the others held\n"
    "            (--way surprise: in one round of three)\n"
    "  calls     ns above an empty call        --way pready | contended | marks | parrived\n"
    "            (--way marks: before the receiver has started: by attach no call copies)\n"
    "            ns above the library's call   --way isend | waitall\n"
    "  cost      what larklane simulate --costs takes, ns; N a multiple of 64 KiB\n"
    "            of a call of attach that copies 2, 4, 8, 16, 32 KiB out of N bytes, by the "
    "sender's\n"
    "            first thread, by the second, either beside the other, by the first beside the\n"
    "            receiver, and the reverse (30 samples in turn)  --way copy\n"
    "            of a turn of a waiting call; until it has a core that a thread leaves; of a line\n"
    "            between cores; what Pready adds to a call that copies   --way turn | switch | "
    "line |\n"
    "            move; of Pready after 1 ms and, in turn, the second call that copies   --way "
    "first\n"
    "options\n"
    "  --bytes N        bytes of one message (default 8)\n"
    "  --partitions N   send and receive partitions (1)\n"
    "  --threads N      sending threads, each with its share of the partitions (1)\n"
    "  --late-us N      the last thread computes so much longer (0)\n"
    "  --bound          exposed: two threads, each on a core, end computing together, but for the\n"
    "                   first, which is late; the second one shares its core with the receiver\n"
    "  --rounds N       measured rounds (1000)\n"
    "  --warmup N       rounds before them (10 percent)\n"
    "  --live           keep a partitioned channel alive beside native calls\n";

int rank_of_this(void) {
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void bind_to(int core) {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  sched_getaffinity(0, sizeof all, &all);
  int index = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &all) && index++ == core) CPU_SET(cpu, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) {
    fprintf(stderr, "pair: two cores are needed: run on a host that has them, unbound\n");
    MPI_Abort(MPI_COMM_WORLD, 6);
  }
}

double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static uint64_t word_of(size_t index, int round) {
  return (uint64_t)index * 0x9e3779b97f4a7c15u + (uint64_t)round * 0xd1342543de82ef95u;
}

void fill(char* buffer, size_t bytes, size_t offset, int round) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = word_of((offset + at) / sizeof(uint64_t), round);
    const size_t length = bytes - at < sizeof word ? bytes - at : sizeof word;
    memcpy(buffer + offset + at, &word, length);
  }
}

long wrong_words(const char* buffer, size_t bytes, int round) {
  long wrong = 0;
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = word_of(at / sizeof(uint64_t), round);
    const size_t length = bytes - at < sizeof word ? bytes - at : sizeof word;
    wrong += memcmp(buffer + at, &word, length) != 0;
  }
  return wrong;
}

/* Memory of rank 0's that rank 1 maps through /proc: nothing of the MPI's. */
struct news* share_news(size_t shared_bytes) {
  const size_t bytes = sizeof(struct news) + shared_bytes;
  int place[2] = {getpid(), -1};
  if (rank_of_this() == 0) {
    place[1] = memfd_create("pair", 0);
    if (ftruncate(place[1], (off_t)bytes) != 0) MPI_Abort(MPI_COMM_WORLD, 4);
  }
  MPI_Bcast(place, 2, MPI_INT, 0, MPI_COMM_WORLD);
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", place[0], place[1]);
  const int fd = open(path, O_RDWR);
  struct news* news = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || news == MAP_FAILED) {
    fprintf(stderr, "pair: %s can't be mapped: run both ranks on one host\n", path);
    MPI_Abort(MPI_COMM_WORLD, 4);
  }
  close(fd);
  if (rank_of_this() == 0) atomic_init(&news->round, INT_MIN);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_of_this() == 0) close(place[1]);
  return news;
}

void tell_news(struct news* news, int round, double arrived) {
  news->arrived = arrived;
  atomic_store(&news->round, round);
}

void await_news(struct news* news, int round) {
  while (atomic_load(&news->round) != round) usleep(20);
}

static struct options parse(int argc, char** argv) {
  struct options o = {"", "partitioned", 8, 1, 1, 0, 0, 1000, -1, 0};
  enum { WAY = 1, BYTES, PARTITIONS, THREADS, LATE, BOUND, ROUNDS, WARMUP, LIVE, HELP };
  static const struct option known[] = {{"way", 1, NULL, WAY},
                                        {"bytes", 1, NULL, BYTES},
                                        {"partitions", 1, NULL, PARTITIONS},
                                        {"threads", 1, NULL, THREADS},
                                        {"late-us", 1, NULL, LATE},
                                        {"bound", 0, NULL, BOUND},
                                        {"rounds", 1, NULL, ROUNDS},
                                        {"warmup", 1, NULL, WARMUP},
                                        {"live", 0, NULL, LIVE},
                                        {"help", 0, NULL, HELP},
                                        {NULL, 0, NULL, 0}};
  int option;
  while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
    const long long value = optarg ? atoll(optarg) : 0;
    switch (option) {
      case WAY:
        o.way = optarg;
        break;
      case BYTES:
        o.bytes = (size_t)value;
        break;
      case PARTITIONS:
        o.partitions = (int)value;
        break;
      case THREADS:
        o.threads = (int)value;
        break;
      case LATE:
        o.late_us = (int)value;
        break;
      case BOUND:
        o.bound = 1;
        break;
      case ROUNDS:
        o.rounds = (int)value;
        break;
      case WARMUP:
        o.warmup = (int)value;
        break;
      case LIVE:
        o.live = 1;
        break;
      case HELP:
        fputs(usage, stdout);
        exit(0);
      default:
        fputs(usage, stderr);
        exit(2);
    }
  }
  if (optind + 1 != argc || o.partitions < 1 || o.threads < 1 || o.rounds < 1 ||
      o.bytes % (size_t)o.partitions != 0 || o.partitions % o.threads != 0 ||
      (o.bound && o.threads != 2)) {
    fputs(usage, stderr);
    fputs("the bytes must be a multiple of the partitions, and these of the threads\n", stderr);
    exit(2);
  }
  o.what = argv[optind];
  if (o.warmup < 0) o.warmup = o.rounds / 10 + 1;
  return o;
}

int main(int argc, char** argv) {
  const struct options options = parse(argc, argv);
  int provided;
  MPI_Init_thread(&argc, &argv, options.threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                  &provided);
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2 || (options.threads > 1 && provided < MPI_THREAD_MULTIPLE)) {
    fprintf(stderr, "pair: two ranks are needed, and MPI_THREAD_MULTIPLE for several threads\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  struct samples samples = {calloc((size_t)options.rounds, sizeof(double)), 0, 0};
  if (strcmp(options.what, "latency") == 0)
    measure_latency(&options, &samples);
  else if (strcmp(options.what, "exposed") == 0)
    measure_exposed(&options, &samples);
  else if (strcmp(options.what, "one-copy") == 0)
    measure_one_copy(&options, &samples);
  else if (strcmp(options.what, "early") == 0)
    measure_early(&options, &samples);
  else if (strcmp(options.what, "calls") == 0)
    measure_calls(&options, &samples);
  else if (strcmp(options.what, "cost") == 0)
    measure_cost(&options, &samples);
  else {
    fprintf(stderr, "pair: no measurement is called %s\n%s", options.what, usage);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  long wrong = 0;
  MPI_Reduce(&samples.wrong, &wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank_of_this() == 0) {
    printf("{\"samples\": [");
    for (int i = 0; i < samples.count; ++i) printf("%s%.1f", i ? ", " : "", samples.values[i]);
    printf("], \"wrong\": %ld}\n", wrong);
  }
  free(samples.values);
  MPI_Finalize();
  return 0;
}
