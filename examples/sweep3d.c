/* sweep3d: a transport sweep (KBA wavefront) with MPI and OpenMP, faces sent partition by
 * partition.
 *
 * Ranks form a grid in x and y, each owns a column of nx x ny x nz cells. A sweep runs through the
 * cells from one of the eight corners (octants): a rank needs the outflow of its neighbours
 * upstream, block of planes by block of planes. Threads share the angles: the face that belongs to
 * a block is one partitioned message, one partition per group of angles. A thread waits for its own
 * partitions only (MPI_Parrived), computes its angles and hands its part of the outflow to MPI
 * (MPI_Pready): a late thread delays its own angles downstream, and no others.
 *
 * Each direction has two buffers and two requests that take turns: a block travels while the
 * threads compute the next one. No two active requests share memory. For comparison: --mode
 * funneled (one send after the join) and multiple (one send per thread, MPI_THREAD_MULTIPLE).
 *
 * Checks itself: the solution is a plane in x, y and z with numbers that are exact in floating
 * point. Each inflow and each last plane must equal it to the last bit. Exit status 1 if not.
 *
 *     mpiexec -n 2 ./sweep3d --threads 4 --late-ms 5
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <omp.h>
#include <sched.h>

#include "late.h"
#include "options.h"
#include "trace.h"

enum { kPartitioned, kFunneled, kMultiple };
enum { kX, kY };

/* Faces that travel along one axis in one direction. Round r uses buffer and requests r % 2. */
typedef struct {
  int upstream, downstream; /* ranks, MPI_PROC_NULL at the border */
  int length;               /* doubles per angle and block */
  double *in[2], *out[2];   /* [angle][plane of the block][cell along the face] */
  MPI_Request *in_request[2], *out_request[2]; /* kMultiple: one per partition, else one */
  int round, rounds;
  trace_channel received, sent;
} face;

typedef struct {
  int nx, ny, nz, block, angles, threads, partitions, sweeps, mode, late_rank, seed;
  double late_ms;
  const char *trace;
  int rank, place[2], grid[2]; /* of this rank in the grid of ranks; x and y */
  face faces[2][2];            /* [kX, kY][0: towards higher, 1: towards lower coordinates] */
  double *below;               /* [angle][y][x]: last plane computed */
  unsigned char *wrong;        /* per block of the whole run */
  uint64_t checksum;
} problem;

/* One block of work. Coordinates count along the sweep: cell 1 is the first one upstream. */
typedef struct {
  int octant, number; /* number of the block in the whole run */
  int first_plane;    /* planes computed before in this sweep */
  int first[2];       /* cells upstream of this rank, x and y */
  face *along[2];
} block;

/* ---- the equation: f = f(x-1)/2 + f(y-1)/4 + f(z-1)/4 + 7/4, solved by f = x + 2y + 3z + c ----
 */

static double exact(const problem *p, const block *b, int angle, int x, int y, int z) {
  const int constant = 4096 * (b->number / (p->nz / p->block)) + angle;
  return (double)(b->first[kX] + x) + 2.0 * (b->first[kY] + y) + 3.0 * (b->first_plane + z) +
         constant;
}

static void compute_angle(const problem *p, const block *b, int angle) {
  const int slot_x = b->along[kX]->round % 2, slot_y = b->along[kY]->round % 2;
  for (int z = 0; z < p->block; ++z) {
    const size_t at_x = (size_t)(angle * p->block + z) * (size_t)p->ny;
    const size_t at_y = (size_t)(angle * p->block + z) * (size_t)p->nx;
    const double *in_x = b->along[kX]->in[slot_x] + at_x;
    double *out_x = b->along[kX]->out[slot_x] + at_x, *out_y = b->along[kY]->out[slot_y] + at_y;
    memcpy(out_y, b->along[kY]->in[slot_y] + at_y, (size_t)p->nx * sizeof(double));
    for (int y = 0; y < p->ny; ++y) {
      double *below = p->below + ((size_t)angle * (size_t)p->ny + (size_t)y) * (size_t)p->nx;
      double flux = in_x[y];
      for (int x = 0; x < p->nx; ++x) {
        flux = 0.5 * flux + 0.25 * out_y[x] + 0.25 * below[x] + 1.75;
        below[x] = out_y[x] = flux;
      }
      out_x[y] = flux;
    }
  }
}

/* Fills (`check` = 0) or checks the inflow of one angle along one axis. Returns whether it was
 * right. */
static int inflow(const problem *p, const block *b, int axis, int angle, int check) {
  face *f = b->along[axis];
  const int cells = axis == kX ? p->ny : p->nx;
  double *in = f->in[f->round % 2] + (size_t)angle * (size_t)f->length;
  for (int z = 0; z < p->block; ++z) {
    for (int i = 0; i < cells; ++i, ++in) {
      const double right =
          exact(p, b, angle, axis == kX ? 0 : i + 1, axis == kX ? i + 1 : 0, z + 1);
      if (!check) *in = right;
      if (*in != right) return 0;
    }
  }
  return 1;
}

/* Fills or checks the plane between blocks. */
static int plane(const problem *p, const block *b, int angle, int check) {
  double *below = p->below + (size_t)angle * (size_t)p->ny * (size_t)p->nx;
  for (int y = 1; y <= p->ny; ++y) {
    for (int x = 1; x <= p->nx; ++x, ++below) {
      const double right = exact(p, b, angle, x, y, check ? p->block : 0);
      if (!check) *below = right;
      if (*below != right) return 0;
    }
  }
  return 1;
}

/* A number that depends on every bit of an angle's outflow, and on the block's number. */
static uint64_t outflow_hash(const problem *p, const block *b, int angle) {
  uint64_t hash =
      14695981039346656037u ^ (uint64_t)((b->number * p->angles + angle) * 4096 + p->rank);
  for (int axis = kX; axis <= kY; ++axis) {
    const face *f = b->along[axis];
    const double *out = f->out[f->round % 2] + (size_t)angle * (size_t)f->length;
    for (int i = 0; i < f->length; ++i) {
      uint64_t bits;
      memcpy(&bits, &out[i], sizeof bits);
      hash = (hash ^ bits) * 1099511628211u;
    }
  }
  return hash;
}

/* ---- communication: before, during and after the computation of a block ---- */

static int messages_per_face(const problem *p) { return p->mode == kMultiple ? p->partitions : 1; }

/* Starts the receive of a round's inflow. */
static void expect(const problem *p, face *f, int round) {
  const int slot = round % 2, share = p->angles * f->length / messages_per_face(p);
  if (f->upstream == MPI_PROC_NULL || round >= f->rounds) return;
  trace_mark(&f->received, round, TRACE_START);
  if (p->mode == kPartitioned) {
    MPI_Start(f->in_request[slot]);
    return;
  }
  for (int i = 0; i < messages_per_face(p); ++i) {
    MPI_Irecv(f->in[slot] + (size_t)i * (size_t)share, share, MPI_DOUBLE, f->upstream, i,
              MPI_COMM_WORLD, &f->in_request[slot][i]);
  }
}

static void await_inflow(const problem *p, face *f) {
  if (f->upstream == MPI_PROC_NULL) return;
  trace_mark(&f->received, f->round, TRACE_WAIT);
  MPI_Waitall(messages_per_face(p), f->in_request[f->round % 2], MPI_STATUSES_IGNORE);
  trace_mark(&f->received, f->round, TRACE_DONE);
}

/* The outflow buffer of two rounds ago is free once its send has completed. */
static void await_outflow(const problem *p, face *f, int round) {
  if (f->downstream == MPI_PROC_NULL || round < 0) return;
  trace_mark(&f->sent, round, TRACE_WAIT);
  MPI_Waitall(messages_per_face(p), f->out_request[round % 2], MPI_STATUSES_IGNORE);
  trace_mark(&f->sent, round, TRACE_DONE);
}

/* Called by one thread, before the block. */
static void begin(const problem *p, face *f) {
  await_outflow(p, f, f->round - 2);
  if (f->downstream != MPI_PROC_NULL) {
    trace_mark(&f->sent, f->round, TRACE_START);
    if (p->mode == kPartitioned) MPI_Start(f->out_request[f->round % 2]);
  }
  if (p->mode == kFunneled) await_inflow(p, f);
}

/* Called by the partition's thread: tests whether its inflow has arrived. */
static int arrived(const problem *p, face *f, int partition) {
  int flag = 1;
  if (f->upstream == MPI_PROC_NULL) return 1;
  MPI_Request *requests = f->in_request[f->round % 2];
  if (p->mode == kPartitioned) MPI_Parrived(*requests, partition, &flag);
  if (p->mode == kMultiple) MPI_Test(&requests[partition], &flag, MPI_STATUS_IGNORE);
  if (flag) trace_mark(&f->received, f->round, partition);
  return flag;
}

/* Called by the partition's thread: releases its outflow. */
static void ready(const problem *p, face *f, int partition) {
  const int slot = f->round % 2, share = p->angles * f->length / p->partitions;
  if (f->downstream == MPI_PROC_NULL) return;
  trace_mark(&f->sent, f->round, partition);
  if (p->mode == kPartitioned) MPI_Pready(partition, *f->out_request[slot]);
  if (p->mode == kMultiple) {
    MPI_Isend(f->out[slot] + (size_t)partition * (size_t)share, share, MPI_DOUBLE, f->downstream,
              partition, MPI_COMM_WORLD, &f->out_request[slot][partition]);
  }
}

/* Called by one thread, after the block. */
static void end(const problem *p, face *f) {
  if (p->mode == kFunneled && f->downstream != MPI_PROC_NULL) {
    MPI_Isend(f->out[f->round % 2], p->angles * f->length, MPI_DOUBLE, f->downstream, 0,
              MPI_COMM_WORLD, f->out_request[f->round % 2]);
  }
  if (p->mode != kFunneled) await_inflow(p, f);
  expect(p, f, f->round + 2);
  ++f->round;
}

/* ---- the sweep ---- */

static void compute_partition(problem *p, const block *b, int partition) {
  const int angles = p->angles / p->partitions;
  uint64_t hash = 0;
  int right = 1;
  for (int angle = partition * angles; angle < (partition + 1) * angles; ++angle) {
    for (int axis = kX; axis <= kY; ++axis) {
      right &= inflow(p, b, axis, angle, b->along[axis]->upstream != MPI_PROC_NULL);
    }
    if (b->first_plane == 0) plane(p, b, angle, 0);
    compute_angle(p, b, angle);
    if (b->first_plane + p->block == p->nz) right &= plane(p, b, angle, 1);
    hash += outflow_hash(p, b, angle);
  }
  ready(p, b->along[kX], partition);
  ready(p, b->along[kY], partition);
#pragma omp atomic
  p->checksum += hash;
  if (!right) {
#pragma omp atomic write
    p->wrong[b->number] = 1;
  }
}

/* Called by all threads. A thread takes its partitions in the order of their inflow's arrival. */
static void compute_block(problem *p, const block *b) {
  const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
  const int first = p->partitions * thread / threads, last = p->partitions * (thread + 1) / threads;
  unsigned char computed[4096] = {0};
#pragma omp single
  for (int axis = kX; axis <= kY; ++axis) begin(p, b->along[axis]);
  if (p->seed != 0)
    late_sleep(p->late_ms * late_chance(p->seed, p->rank, b->number, thread));
  else if (p->rank == p->late_rank && thread == threads - 1)
    late_sleep(p->late_ms);
  for (int missing = last - first; missing > 0;) {
    const int before = missing;
    for (int i = first; i < last; ++i) {
      if (computed[i - first] || !arrived(p, b->along[kX], i) || !arrived(p, b->along[kY], i))
        continue;
      compute_partition(p, b, i);
      computed[i - first] = 1;
      --missing;
    }
    if (missing == before) sched_yield();
  }
#pragma omp barrier
#pragma omp single
  for (int axis = kX; axis <= kY; ++axis) end(p, b->along[axis]);
}

static block block_of(problem *p, int number) {
  const int blocks = p->nz / p->block;
  block b = {
      .octant = number / blocks % 8, .number = number, .first_plane = number % blocks * p->block};
  const int cells[] = {p->nx, p->ny};
  for (int axis = kX; axis <= kY; ++axis) {
    const int backwards = b.octant >> axis & 1;
    const int before = backwards ? p->grid[axis] - 1 - p->place[axis] : p->place[axis];
    b.along[axis] = &p->faces[axis][backwards];
    b.first[axis] = before * cells[axis];
  }
  return b;
}

static int block_count(const problem *p) { return p->sweeps * 8 * (p->nz / p->block); }

static void run(problem *p) {
  for (int i = 0; i < 4; ++i) {
    expect(p, &p->faces[i / 2][i % 2], 0);
    expect(p, &p->faces[i / 2][i % 2], 1);
  }
#pragma omp parallel num_threads(p->threads)
  for (int number = 0; number < block_count(p); ++number) {
    const block b = block_of(p, number);
    compute_block(p, &b);
  }
  for (int i = 0; i < 4; ++i) {
    face *f = &p->faces[i / 2][i % 2];
    await_outflow(p, f, f->round - 2);
    await_outflow(p, f, f->round - 1);
  }
}

/* ---- set-up ---- */

static void open_face(problem *p, int axis, int backwards) {
  static const char *const kNames[2][2] = {{"east", "west"}, {"north", "south"}};
  face *f = &p->faces[axis][backwards];
  const int stride = axis == kX ? p->grid[kY] : 1, step = backwards ? -1 : 1;
  const int to = p->place[axis] + step, from = p->place[axis] - step;
  f->downstream = to < 0 || to >= p->grid[axis] ? MPI_PROC_NULL : p->rank + step * stride;
  f->upstream = from < 0 || from >= p->grid[axis] ? MPI_PROC_NULL : p->rank - step * stride;
  f->length = p->block * (axis == kX ? p->ny : p->nx);
  f->rounds = block_count(p) / 2;
  trace_open(&f->received, p->trace, kNames[axis][backwards], 0, f->upstream, p->partitions,
             f->rounds);
  trace_open(&f->sent, p->trace, kNames[axis][backwards], 1, f->downstream, p->partitions,
             f->rounds);
  for (int slot = 0; slot < 2; ++slot) {
    const int tag = (axis * 2 + backwards) * 2 + slot,
              count = p->angles / p->partitions * f->length;
    f->in[slot] = calloc((size_t)p->angles * (size_t)f->length, sizeof(double));
    f->out[slot] = calloc((size_t)p->angles * (size_t)f->length, sizeof(double));
    f->in_request[slot] = malloc((size_t)p->partitions * sizeof(MPI_Request));
    f->out_request[slot] = malloc((size_t)p->partitions * sizeof(MPI_Request));
    for (int i = 0; i < p->partitions; ++i) {
      f->in_request[slot][i] = f->out_request[slot][i] = MPI_REQUEST_NULL;
    }
    if (p->mode == kPartitioned && f->upstream != MPI_PROC_NULL) {
      MPI_Precv_init(f->in[slot], p->partitions, count, MPI_DOUBLE, f->upstream, tag,
                     MPI_COMM_WORLD, MPI_INFO_NULL, f->in_request[slot]);
    }
    if (p->mode == kPartitioned && f->downstream != MPI_PROC_NULL) {
      MPI_Psend_init(f->out[slot], p->partitions, count, MPI_DOUBLE, f->downstream, tag,
                     MPI_COMM_WORLD, MPI_INFO_NULL, f->out_request[slot]);
    }
  }
}

static void close_face(const problem *p, face *f) {
  for (int slot = 0; slot < 2; ++slot) {
    if (p->mode == kPartitioned && f->upstream != MPI_PROC_NULL)
      MPI_Request_free(f->in_request[slot]);
    if (p->mode == kPartitioned && f->downstream != MPI_PROC_NULL)
      MPI_Request_free(f->out_request[slot]);
    free(f->in[slot]);
    free(f->out[slot]);
    free(f->in_request[slot]);
    free(f->out_request[slot]);
  }
}

static void set_up(problem *p) {
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Dims_create(ranks, 2, p->grid);
  if (p->angles % p->partitions) options_refuse("--partitions", "", "a divisor of --angles");
  if (p->nz % p->block) options_refuse("--block", "", "a divisor of --nz");
  p->place[kX] = p->rank / p->grid[kY];
  p->place[kY] = p->rank % p->grid[kY];
  p->below = malloc((size_t)p->angles * (size_t)p->ny * (size_t)p->nx * sizeof *p->below);
  p->wrong = calloc((size_t)block_count(p), 1);
  for (int i = 0; i < 4; ++i) open_face(p, i / 2, i % 2);
}

/* Prints the result on rank 0. Returns the exit status. */
static int report(problem *p, double seconds) {
  const int blocks = block_count(p);
  int wrong = 0;
  MPI_Allreduce(MPI_IN_PLACE, p->wrong, blocks, MPI_UNSIGNED_CHAR, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &p->checksum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < blocks; ++i) wrong += p->wrong[i];
  if (p->rank == 0) {
    printf("sweep3d: %s: %.4f ms per block, wrong data in %d of %d rounds, checksum %016" PRIx64
           "\n",
           wrong ? "FAILED" : "PASSED", seconds * 1e3 / blocks, wrong, blocks, p->checksum);
  }
  return wrong > 0;
}

int main(int argc, char **argv) {
  problem p = {.nx = 32, .ny = 32, .nz = 32, .block = 8, .angles = 8, .threads = 4, .sweeps = 2};
  const option table[] = {
      {"nx", kInt, &p.nx, 1, 4096, NULL, "cells per rank in x"},
      {"ny", kInt, &p.ny, 1, 4096, NULL, "cells per rank in y"},
      {"nz", kInt, &p.nz, 1, 4096, NULL, "cells in z"},
      {"block", kInt, &p.block, 1, 4096, NULL, "planes per message"},
      {"angles", kInt, &p.angles, 1, 4096, NULL, "angles per octant"},
      {"sweeps", kInt, &p.sweeps, 1, 4096, NULL, "sweeps through all eight octants"},
      OPTION_THREADS(&p.threads),
      {"partitions", kInt, &p.partitions, 0, 4096, NULL, "partitions of a face, 0: one per thread"},
      {"late-ms", kReal, &p.late_ms, 0, 60000, NULL,
       "the last thread of --late-rank sleeps so long before each block"},
      OPTION_SEED(&p.seed),
      OPTION_LATE_RANK(&p.late_rank),
      {"mode", kWord, &p.mode, 0, 0, "partitioned|funneled|multiple", "how faces travel:"},
      OPTION_TRACE(&p.trace),
  };
  options_start(&argc, &argv, "sweep3d: transport sweep, MPI + OpenMP, partitioned faces", table,
                sizeof table / sizeof *table);
  if (p.partitions == 0) p.partitions = p.threads;
  set_up(&p);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  run(&p);
  int failed = report(&p, MPI_Wtime() - start);
  trace_channel *channels[8];
  int count = 0;
  for (int i = 0; i < 4; ++i) {
    face *f = &p.faces[i / 2][i % 2];
    if (f->upstream != MPI_PROC_NULL) channels[count++] = &f->received;
    if (f->downstream != MPI_PROC_NULL) channels[count++] = &f->sent;
    close_face(&p, f);
  }
  failed |= trace_write(p.trace, "sweep3d", channels, count);
  free(p.below);
  free(p.wrong);
  MPI_Finalize();
  return failed;
}
