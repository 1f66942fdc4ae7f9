/* particles: particles on a ring of ranks, with MPI and OpenMP.
 *
 * Each rank has a stretch of the ring, each of its threads a lane. In every step a thread works on
 * the particles of its lane, moves them, and hands those that leave the stretch to the neighbour. A
 * lane is a partition of the two messages (to the left, to the right): a count and room for
 * particles. Lanes have differing numbers of particles (--imbalance), so threads finish at
 * differing times, in the same order each step: a case for early partitions. For comparison: --mode
 * joined (one thread sends after the join) and multiple (each thread sends its own message).
 *
 * Checks itself: positions are integers, and the work on a particle has a closed form. At the end
 * the program checks every particle. Exit status 1 if one is wrong or lost.
 *
 *     mpiexec -n 2 ./particles --imbalance 1.5 --threads 4
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <omp.h>
#include <sched.h>
#include <stdint.h>

#include "late.h"
#include "options.h"
#include "trace.h"

enum { kPartitioned, kJoined, kMultiple };
enum { kLeft, kRight };
enum { kReceive, kSend };

/* The ring is 2^32 long. */
typedef struct {
  uint64_t id, state;
  uint32_t place;
  int32_t speed; /* per step, less than a stretch */
} particle;

/* The parcel that one lane sends to one side in one step. */
typedef struct {
  uint64_t count;
  particle moved[];
} parcel;

typedef struct {
  particle *list;
  int count, room;
} lane;

typedef struct {
  int particles, steps, threads, mode, work, capacity, seed;
  double imbalance;
  const char *trace;
  int rank, ranks;
  lane *lanes;
  char *buffer[2][2][2];         /* [step % 2][side][kReceive, kSend]: one parcel a lane */
  MPI_Request *request[2][2][2]; /* one, or with kMultiple one a lane */
  trace_channel received[2], sent[2];
  int full; /* a parcel or a lane had no room */
} problem;

/* ---- one particle ---- */

static const uint64_t kFactor = 6364136223846793005u, kTerm = 1442695040888963407u;

static uint64_t work_on(uint64_t state, int work) {
  for (int i = 0; i < work; ++i) state = state * kFactor + kTerm;
  return state;
}

/* Composes `times` steps by squaring (Brown, Trans. Am. Nucl. Soc. 71, 1994). */
static uint64_t work_done(uint64_t state, uint64_t times) {
  uint64_t factor = kFactor, term = kTerm;
  for (; times > 0; times /= 2) {
    if (times % 2) state = state * factor + term;
    term *= factor + 1;
    factor *= factor;
  }
  return state;
}

static uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static uint64_t stretch(const problem *p) { return (UINT64_C(1) << 32) / (uint64_t)p->ranks; }

static int rank_of(const problem *p, uint32_t place) {
  const int rank = (int)(place / stretch(p));
  return rank < p->ranks ? rank : p->ranks - 1;
}

static particle at_start(const problem *p, uint64_t id, int rank) {
  const uint64_t random = mixed(id + 1);
  const uint64_t length = stretch(p);
  return (particle){.id = id,
                    .state = mixed(random),
                    .place = (uint32_t)((uint64_t)rank * length + random % length),
                    .speed = (int32_t)(length / 8) * ((random >> 63) ? 1 : -1)};
}

/* ---- communication ---- */

static size_t parcel_bytes(const problem *p) {
  return sizeof(parcel) + (size_t)p->capacity * sizeof(particle);
}

static parcel *parcel_of(const problem *p, int step, int side, int way, int lane_index) {
  return (parcel *)(p->buffer[step % 2][side][way] + (size_t)lane_index * parcel_bytes(p));
}

static int neighbour(const problem *p, int side) {
  return (p->rank + (side == kRight ? 1 : p->ranks - 1)) % p->ranks;
}

/* Particles that leave to the right arrive from the left. */
static int tag_of(const problem *p, int step, int side, int way, int lane_index) {
  const int leaves = way == kSend ? side : !side;
  return ((step % 2) * 2 + leaves) * p->threads + lane_index;
}

static void post(problem *p, int step, int side, int way, int lane_index) {
  const int all = p->mode != kMultiple;
  const int bytes = (int)parcel_bytes(p) * (all ? p->threads : 1);
  MPI_Request *request = &p->request[step % 2][side][way][lane_index];
  parcel *from = parcel_of(p, step, side, way, lane_index);
  const int tag = tag_of(p, step, side, way, lane_index), peer = neighbour(p, side);
  if (way == kSend)
    MPI_Isend(from, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, request);
  else
    MPI_Irecv(from, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, request);
}

static void begin_round(problem *p, int step) {
  for (int side = kLeft; side <= kRight; ++side) {
    trace_mark(&p->received[side], step, TRACE_START);
    trace_mark(&p->sent[side], step, TRACE_START);
    if (p->mode == kPartitioned) {
      MPI_Start(p->request[step % 2][side][kReceive]);
      MPI_Start(p->request[step % 2][side][kSend]);
      continue;
    }
    for (int i = 0; i < (p->mode == kMultiple ? p->threads : 1); ++i)
      post(p, step, side, kReceive, i);
  }
}

static void ready(problem *p, int step, int side, int lane_index) {
  trace_mark(&p->sent[side], step, lane_index);
  if (p->mode == kPartitioned) MPI_Pready(lane_index, *p->request[step % 2][side][kSend]);
  if (p->mode == kMultiple) post(p, step, side, kSend, lane_index);
}

static int arrived(problem *p, int step, int side, int lane_index) {
  int flag = 1;
  MPI_Request *requests = p->request[step % 2][side][kReceive];
  if (p->mode == kPartitioned) MPI_Parrived(*requests, lane_index, &flag);
  if (p->mode == kMultiple) MPI_Test(&requests[lane_index], &flag, MPI_STATUS_IGNORE);
  if (flag) trace_mark(&p->received[side], step, lane_index);
  return flag;
}

static void end_round(problem *p, int step) {
  for (int side = kLeft; side <= kRight; ++side) {
    for (int way = kReceive; way <= kSend; ++way) {
      trace_channel *channel = way == kSend ? &p->sent[side] : &p->received[side];
      trace_mark(channel, step, TRACE_WAIT);
      MPI_Waitall(p->mode == kMultiple ? p->threads : 1, p->request[step % 2][side][way],
                  MPI_STATUSES_IGNORE);
      trace_mark(channel, step, TRACE_DONE);
    }
  }
}

/* ---- one step ---- */

static void note_full(problem *p) {
#pragma omp atomic write
  p->full = 1;
}

/* Works on the particles of a lane, moves them, and packs those that leave. */
static void advance(problem *p, int step, int index) {
  lane *own = &p->lanes[index];
  parcel *out[2] = {parcel_of(p, step, kLeft, kSend, index),
                    parcel_of(p, step, kRight, kSend, index)};
  out[kLeft]->count = out[kRight]->count = 0;
  int stay = 0;
  for (int i = 0; i < own->count; ++i) {
    particle moved = own->list[i];
    moved.state = work_on(moved.state, p->work);
    moved.place += (uint32_t)moved.speed;
    parcel *to = out[moved.speed > 0 ? kRight : kLeft];
    if (rank_of(p, moved.place) == p->rank)
      own->list[stay++] = moved;
    else if (to->count < (uint64_t)p->capacity)
      to->moved[to->count++] = moved;
    else
      note_full(p);
  }
  own->count = stay;
}

static void take(problem *p, int step, int side, int index) {
  const parcel *in = parcel_of(p, step, side, kReceive, index);
  lane *own = &p->lanes[index];
  if (in->count > (uint64_t)p->capacity || own->count + (int)in->count > own->room) {
    note_full(p);
    return;
  }
  memcpy(&own->list[own->count], in->moved, in->count * sizeof(particle));
  own->count += (int)in->count;
}

static void do_step(problem *p, int step, int index) {
  advance(p, step, index);
  ready(p, step, kLeft, index);
  ready(p, step, kRight, index);
  if (p->mode == kJoined) {
#pragma omp barrier
#pragma omp single
    {
      post(p, step, kLeft, kSend, 0);
      post(p, step, kRight, kSend, 0);
      end_round(p, step);
    }
  }
  for (int taken = 0; taken != 3;) {
    const int before = taken;
    for (int side = kLeft; side <= kRight; ++side) {
      if ((taken >> side & 1) || !arrived(p, step, side, index)) continue;
      take(p, step, side, index);
      taken |= 1 << side;
    }
    if (taken == before) sched_yield();
  }
#pragma omp barrier
#pragma omp single
  {
    if (p->mode != kJoined) end_round(p, step);
    if (step + 1 < p->steps) begin_round(p, step + 1);
  }
}

static void run(problem *p) {
  begin_round(p, 0);
#pragma omp parallel num_threads(p->threads)
  {
    const int index = omp_get_thread_num();
    for (int step = 0; step < p->steps; ++step) do_step(p, step, index);
  }
}

/* ---- set-up ---- */

/* The number of particles of a lane: it grows from the first to the last lane by the factor
 * (1 + imbalance), or is random. */
static int population(const problem *p, int index) {
  const double share = p->seed != 0     ? late_chance(p->seed, p->rank, 0, index)
                       : p->threads > 1 ? (double)index / (p->threads - 1)
                                        : 0;
  return (int)((1 + p->imbalance * share) * p->particles);
}

static void set_up(problem *p) {
  MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &p->ranks);
  const int largest = (int)((1 + p->imbalance) * p->particles);
  p->capacity = largest / 4 + 64; /* an eighth leaves to each side, on average */
  if ((double)parcel_bytes(p) * p->threads > 1e9)
    options_refuse("--particles", "", "messages below 1 GB");
  p->lanes = calloc((size_t)p->threads, sizeof *p->lanes);
  for (int index = 0; index < p->threads; ++index) {
    lane *own = &p->lanes[index];
    own->count = population(p, index);
    own->room = 2 * largest + 256;
    own->list = malloc((size_t)own->room * sizeof *own->list);
    for (int i = 0; i < own->count; ++i) {
      const uint64_t id = ((uint64_t)p->rank << 48) | ((uint64_t)index << 32) | (uint64_t)i;
      own->list[i] = at_start(p, id, p->rank);
    }
  }
  static const char *const kNames[2] = {"left", "right"};
  for (int side = kLeft; side <= kRight; ++side) {
    trace_open(&p->received[side], p->trace, kNames[!side], 0, neighbour(p, side), p->threads,
               p->steps);
    trace_open(&p->sent[side], p->trace, kNames[side], 1, neighbour(p, side), p->threads, p->steps);
    for (int i = 0; i < 4; ++i) {
      const int copy = i / 2, way = i % 2;
      const MPI_Count bytes = (MPI_Count)parcel_bytes(p);
      char *buffer = calloc((size_t)p->threads, parcel_bytes(p));
      MPI_Request *requests = malloc((size_t)p->threads * sizeof *requests);
      for (int t = 0; t < p->threads; ++t) requests[t] = MPI_REQUEST_NULL;
      p->buffer[copy][side][way] = buffer;
      p->request[copy][side][way] = requests;
      if (p->mode != kPartitioned) continue;
      const int tag = tag_of(p, copy, side, way, 0), peer = neighbour(p, side);
      if (way == kSend)
        MPI_Psend_init(buffer, p->threads, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                       MPI_INFO_NULL, requests);
      else
        MPI_Precv_init(buffer, p->threads, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                       MPI_INFO_NULL, requests);
    }
  }
}

static void clean_up(problem *p) {
  for (int i = 0; i < 8; ++i) {
    MPI_Request *requests = p->request[i / 4][i / 2 % 2][i % 2];
    if (p->mode == kPartitioned) MPI_Request_free(requests);
    free(requests);
    free(p->buffer[i / 4][i / 2 % 2][i % 2]);
  }
  for (int index = 0; index < p->threads; ++index) free(p->lanes[index].list);
  free(p->lanes);
}

/* ---- the result ---- */

static int is_right(const problem *p, const particle *found, int index) {
  const particle began = at_start(p, found->id, (int)(found->id >> 48));
  return (int)(found->id >> 32 & 0xffff) == index && found->speed == began.speed &&
         found->place == began.place + (uint32_t)p->steps * (uint32_t)began.speed &&
         rank_of(p, found->place) == p->rank &&
         found->state == work_done(began.state, (uint64_t)p->steps * (uint64_t)p->work);
}

/* Prints the result on rank 0. Returns the exit status. */
static int report(problem *p, double seconds) {
  /* particles here, expected in all, wrong, sum of ids, expected sum; room */
  uint64_t sums[6] = {0, 0, 0, 0, 0, (uint64_t)p->full};
  for (int index = 0; index < p->threads; ++index) {
    const lane *own = &p->lanes[index];
    sums[0] += (uint64_t)own->count;
    for (int i = 0; i < own->count; ++i) {
      sums[2] += !is_right(p, &own->list[i], index);
      sums[3] += mixed(own->list[i].id);
    }
    sums[1] += (uint64_t)population(p, index);
    for (int i = 0; i < population(p, index); ++i)
      sums[4] += mixed(((uint64_t)p->rank << 48) | ((uint64_t)index << 32) | (uint64_t)i);
  }
  MPI_Allreduce(MPI_IN_PLACE, sums, 6, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  const int failed = sums[0] != sums[1] || sums[2] != 0 || sums[3] != sums[4] || sums[5] != 0;
  if (p->rank == 0) {
    printf("particles: %s: %.4f ms per step, %" PRIu64 " of %" PRIu64 " particles, %" PRIu64
           " of them wrong%s, checksum %016" PRIx64 "\n",
           failed ? "FAILED" : "PASSED", seconds * 1e3 / p->steps, sums[0], sums[1], sums[2],
           sums[5] ? ", too many for a parcel" : "", sums[3]);
  }
  return failed;
}

int main(int argc, char **argv) {
  problem p = {.particles = 2000, .steps = 50, .threads = 4, .work = 100, .imbalance = 1};
  const option table[] = {
      {"particles", kInt, &p.particles, 1, 1 << 24, NULL, "particles in the first lane of a rank"},
      {"imbalance", kReal, &p.imbalance, 0, 100, NULL,
       "the last lane has (1 + imbalance) times as many"},
      {"seed", kInt, &p.seed, 0, 1 << 30, NULL,
       "not 0: lanes have up to (1 + imbalance) times as many, by chance"},
      {"work", kInt, &p.work, 0, 1 << 24, NULL, "operations on a particle in each step"},
      {"steps", kInt, &p.steps, 1, 1 << 24, NULL, "time steps"},
      {"threads", kInt, &p.threads, 1, 1024, NULL, "threads per rank, lanes, partitions"},
      {"mode", kWord, &p.mode, 0, 0, "partitioned|joined|multiple", "how parcels travel:"},
      OPTION_TRACE(&p.trace),
  };
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  options_read(argc, argv,
               "particles: lanes of differing length on a ring, MPI + OpenMP, partitioned", table,
               sizeof table / sizeof *table);
  if (provided < MPI_THREAD_MULTIPLE)
    options_refuse("this MPI's thread level", "", "MPI_THREAD_MULTIPLE");
  set_up(&p);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  run(&p);
  int failed = report(&p, MPI_Wtime() - begin);
  trace_channel *channels[] = {&p.received[kLeft], &p.sent[kLeft], &p.received[kRight],
                               &p.sent[kRight]};
  failed |= trace_write(p.trace, "particles", channels, 4);
  clean_up(&p);
  MPI_Finalize();
  return failed;
}
