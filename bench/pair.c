/* Measurements of a pair of ranks: plain MPI-4, native or under Larklane.
 *
 * The last line on standard output (the last ones, one for each --at) is {"samples": [...],
 * "wrong": n}: every round's figure, and the rounds whose payload or completion was wrong. Ranks 0
 * and 1 take part; warm-up rounds are not reported.
 */
#define _GNU_SOURCE
#include "pair.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: pair WHAT [options]\n"
    "  latency   half round trip, ns           --way partitioned | persistent | isend | line |\n"
    "            socket | asleep: a TCP connection of its own, asking all the time or not\n"
    "  exposed   last arrival - last ready, ns --way partitioned | persistent | join | threads\n"
    "  one-copy  the same of one partition, ns --way push | pull, no MPI\n"
    "  early     ns from the first of the partitions being ready to its arrival, the others held\n"
    "            (--way surprise: in one round of three)\n"
    "  packets | doorbells   of an exposed round, both ranks, without the barrier: of the RDMA\n"
    "            device, or of what doorbells.so counts that is preloaded\n"
    "  calls     ns above an empty call        --way pready | contended | marks | parrived\n"
    "            (--way marks: before the receiver has started: by attach no call copies)\n"
    "            ns above the library's call   --way isend | waitall\n"
    "  messages  ns for one of as many non-blocking messages as there are partitions, each with\n"
    "            its share of the bytes, and then an answer; or half a round trip  --way rate | "
    "half\n"
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
    "  --late-us N      the last thread computes so much longer (0); early: the sender, from when\n"
    "                   both have started to the first partition\n"
    "  --bound          exposed: two threads, each on a core, end computing together, but for the\n"
    "                   first, which is late; the second one shares its core with the receiver\n"
    "  --rounds N       measured rounds (1000)\n"
    "  --warmup N       rounds before them (10 percent)\n"
    "  --hold-us N      early: how long the others are held (300)\n"
    "  --live           keep a partitioned channel alive beside native calls\n"
    "  --at NAME=N,...  this point (bytes, partitions, rounds, warmup), then those of further "
    "--at:\n"
    "                   a line for each; what is not named stays\n"
    "  --limit-s N      a point that takes longer ends the program (none)\n";

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

void compute_until(double end_ns) {
  while (now_ns() < end_ns) {
  }
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

enum { POINTS_MAX = 64 };

/* What is measured, one after the other. */
struct plan {
  struct options points[POINTS_MAX];
  int count;
  unsigned limit_s;
};

static void misused(const char* why) {
  fprintf(stderr, "%s%s\n", usage, why);
  exit(2);
}

/* The same but for what `text` says: "bytes=8,rounds=10". */
static struct options changed(struct options o, char* text) {
  static char* const names[] = {"bytes", "partitions", "rounds", "warmup", NULL};
  char* value = NULL;
  while (*text) {
    const int name = getsubopt(&text, names, &value);
    if (name < 0 || !value) misused("--at takes names with values");
    if (name == 0)
      o.bytes = (size_t)atoll(value);
    else
      *(int*[]){&o.partitions, &o.rounds, &o.warmup}[name - 1] = atoi(value);
  }
  return o;
}

static void check(struct options* o) {
  if (o->partitions < 1 || o->threads < 1 || o->rounds < 1 ||
      o->bytes % (size_t)o->partitions != 0 || o->partitions % o->threads != 0 ||
      (o->bound && o->threads != 2))
    misused("the bytes must be a multiple of the partitions, and these of the threads");
  if (o->warmup < 0) o->warmup = o->rounds / 10 + 1;
}

enum {
  WAY = 1,
  BYTES,
  PARTITIONS,
  THREADS,
  LATE,
  ROUNDS,
  WARMUP,
  HOLD,
  BOUND,
  LIVE,
  AT,
  LIMIT,
  HELP
};

/* Where an option's number is kept. */
static int* number_of(struct options* o, int option) {
  return (int*[]){
      &o->partitions, &o->threads, &o->late_us, &o->rounds, &o->warmup, &o->hold_us}[option -
                                                                                     PARTITIONS];
}

static void take(struct options* o, int option) {
  if (option == WAY)
    o->way = optarg;
  else if (option == BYTES)
    o->bytes = (size_t)atoll(optarg);
  else if (option >= PARTITIONS && option <= HOLD)
    *number_of(o, option) = atoi(optarg);
  else if (option == BOUND)
    o->bound = 1;
  else if (option == LIVE)
    o->live = 1;
  else if (option == HELP) {
    fputs(usage, stdout);
    exit(0);
  } else {
    misused("");
  }
}

static struct plan parse(int argc, char** argv) {
  struct plan plan = {.count = 0};
  struct options o = {"", "partitioned", 8, 1, 1, 0, 0, 1000, -1, 0, 300};
  static const struct option known[] = {{"way", 1, NULL, WAY},
                                        {"bytes", 1, NULL, BYTES},
                                        {"partitions", 1, NULL, PARTITIONS},
                                        {"threads", 1, NULL, THREADS},
                                        {"late-us", 1, NULL, LATE},
                                        {"rounds", 1, NULL, ROUNDS},
                                        {"warmup", 1, NULL, WARMUP},
                                        {"hold-us", 1, NULL, HOLD},
                                        {"bound", 0, NULL, BOUND},
                                        {"live", 0, NULL, LIVE},
                                        {"at", 1, NULL, AT},
                                        {"limit-s", 1, NULL, LIMIT},
                                        {"help", 0, NULL, HELP},
                                        {NULL, 0, NULL, 0}};
  char* at[POINTS_MAX];
  int option;
  while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
    if (option == LIMIT)
      plan.limit_s = (unsigned)atoi(optarg);
    else if (option != AT)
      take(&o, option);
    else if (plan.count < POINTS_MAX)
      at[plan.count++] = optarg;
    else
      misused("too many points");
  }
  if (optind + 1 != argc) misused("one thing is measured");
  o.what = argv[optind];
  for (int i = 0; i < plan.count; ++i) plan.points[i] = changed(o, at[i]);
  if (plan.count == 0) plan.points[plan.count++] = o;
  for (int i = 0; i < plan.count; ++i) check(&plan.points[i]);
  return plan;
}

static void measure(const struct options* o) {
  static const struct {
    const char* name;
    void (*measure)(const struct options*, struct samples*);
  } all[] = {
      {"latency", measure_latency}, {"exposed", measure_exposed},   {"one-copy", measure_one_copy},
      {"early", measure_early},     {"calls", measure_calls},       {"cost", measure_cost},
      {"packets", count_packets},   {"doorbells", count_doorbells}, {"messages", measure_messages}};
  struct samples samples = {calloc((size_t)o->rounds, sizeof(double)), 0, 0};
  size_t which = 0;
  while (which < sizeof all / sizeof *all && strcmp(o->what, all[which].name) != 0) ++which;
  if (which == sizeof all / sizeof *all) {
    fprintf(stderr, "pair: no measurement is called %s\n%s", o->what, usage);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  all[which].measure(o, &samples);
  long wrong = 0;
  MPI_Reduce(&samples.wrong, &wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank_of_this() == 0) {
    printf("{\"samples\": [");
    for (int i = 0; i < samples.count; ++i) printf("%s%.1f", i ? ", " : "", samples.values[i]);
    printf("], \"wrong\": %ld}\n", wrong);
    fflush(stdout);
  }
  free(samples.values);
}

enum { TIMED_OUT = 124 }; /* as timeout(1) has it */

static void end_late(int signal) {
  (void)signal;
  _exit(TIMED_OUT);
}

int main(int argc, char** argv) {
  const struct plan plan = parse(argc, argv);
  const int threads = plan.points[0].threads;
  int provided;
  MPI_Init_thread(&argc, &argv, threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2 || (threads > 1 && provided < MPI_THREAD_MULTIPLE)) {
    fprintf(stderr, "pair: two ranks are needed, and MPI_THREAD_MULTIPLE for several threads\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  signal(SIGALRM, end_late);
  for (int i = 0; i < plan.count; ++i) {
    alarm(plan.limit_s);
    measure(&plan.points[i]);
  }
  MPI_Finalize();
  return 0;
}
