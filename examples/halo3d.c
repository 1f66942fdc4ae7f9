/* halo3d: diffusion in a periodic box, 7-point stencil, six strided faces per rank, with MPI and
 * OpenMP.
 *
 * Ranks form a 3D grid, threads share the planes of a rank's block. A derived datatype describes a
 * face: one line of the face, with the distance to the next line as its extent. So the program
 * packs nothing. A face travels in partitions of lines. The thread that owns the planes of a
 * partition waits for the ghost cells of these planes only. It updates the planes and hands their
 * part of the six faces to MPI. For comparison: --mode single (whole faces, sent by one thread
 * after the join) and multiple (each thread sends its own messages, MPI_THREAD_MULTIPLE).
 *
 * Checks itself: the exact solution of the scheme is u = g^step cos(2 pi (x / X + y / Y + z / Z)).
 * Each arrived ghost cell and the final field must equal it. Exit status 1 if wrong.
 *
 *     mpiexec -n 2 ./halo3d --n 64 --threads 4
 */
#define _POSIX_C_SOURCE 200809L
#include <complex.h>
#include <math.h>
#include <mpi.h>
#include <omp.h>
#include <sched.h>

#include "options.h"
#include "trace.h"

enum { kPartitioned, kSingle, kMultiple };
enum { kReceive, kSend };
static const double kPi = 3.14159265358979323846;
static const double kDiffusion = 0.125; /* time step / (cell size)^2; stable up to 1/6 */

/* One side of the block: sends its outermost cells, receives the ghost cells beside them. */
typedef struct {
  int axis, high; /* axis 0, 1, 2; high: the side of larger coordinates */
  int peer;       /* may be this rank itself: the box is periodic */
  int lines;      /* of the face; partitions are runs of lines */
  MPI_Datatype line;
  MPI_Request *request[2][2]; /* [copy of the grid][kReceive, kSend]; kMultiple: one per partition,
                                 else one */
  trace_channel received, sent;
} face;

typedef struct {
  int n, steps, threads, partitions, mode, late_rank;
  double late_ms;
  const char *trace;
  MPI_Comm grid_comm;
  int rank, ranks[3], place[3];
  double *grid[2];          /* (n + 2)^3 cells */
  double complex *phase[3]; /* exp(2 pi i x / X) of cell 0 .. n + 1 along each axis */
  face faces[6];
  unsigned char *wrong, *updated; /* per round; per partition in this step */
} problem;

static double *cell(const problem *p, int copy, int i, int j, int k) {
  const size_t side = (size_t)(p->n + 2);
  return p->grid[copy] + ((size_t)i * side + (size_t)j) * side + (size_t)k;
}

/* ---- the equation ---- */

static double decay_per_step(const problem *p) {
  double sum = 0;
  for (int axis = 0; axis < 3; ++axis) sum += pow(sin(kPi / (p->n * p->ranks[axis])), 2);
  return 1 - 4 * kDiffusion * sum;
}

static double tolerance(const problem *p) { return 1e-14 * (p->steps + 100); }

static double shape(const problem *p, int i, int j, int k) {
  return creal(p->phase[0][i] * p->phase[1][j] * p->phase[2][k]);
}

static void update_line(const problem *p, int step, int i, int j) {
  const double *u = cell(p, step % 2, i, j, 0);
  const double *west = cell(p, step % 2, i - 1, j, 0), *east = cell(p, step % 2, i + 1, j, 0);
  const double *south = cell(p, step % 2, i, j - 1, 0), *north = cell(p, step % 2, i, j + 1, 0);
  double *restrict v = cell(p, (step + 1) % 2, i, j, 0);
  for (int k = 1; k <= p->n; ++k) {
    const double sum = west[k] + east[k] + south[k] + north[k] + u[k - 1] + u[k + 1];
    v[k] = u[k] + kDiffusion * (sum - 6 * u[k]);
  }
}

/* Compares the ghost cells of one partition of a face with the exact solution of the scheme. */
static void check_ghosts(problem *p, const face *f, int step, int partition) {
  const int lines = p->n / p->partitions, ghost = f->high ? p->n + 1 : 0;
  const double scale = pow(decay_per_step(p), step);
  double worst = 0;
  for (int line = 1 + partition * lines; line < 1 + (partition + 1) * lines; ++line) {
    for (int m = 1; m <= p->n; ++m) {
      const int i = f->axis == 0 ? ghost : line;
      const int j = f->axis == 1 ? ghost : f->axis == 0 ? line : m;
      const int k = f->axis == 2 ? ghost : m;
      const double difference = fabs(*cell(p, step % 2, i, j, k) - scale * shape(p, i, j, k));
      if (!(difference <= worst)) worst = difference;
    }
  }
  if (!(worst <= tolerance(p))) {
#pragma omp atomic write
    p->wrong[step - 1] = 1;
  }
}

/* ---- communication ---- */

static int messages_per_face(const problem *p) { return p->mode == kMultiple ? p->partitions : 1; }

/* The tag of a message is the face that sends it. */
static int tag_of(const problem *p, const face *f, int copy, int way, int message) {
  const int high = way == kSend ? f->high : !f->high;
  return ((copy * 3 + f->axis) * 2 + high) * p->partitions + message;
}

/* First cell of a partition of a face (kSend) or of its ghost cells (kReceive). */
static double *part_of(const problem *p, const face *f, int copy, int way, int partition) {
  const int depth = f->high ? p->n + (way == kReceive) : 1 - (way == kReceive);
  const int first = 1 + partition * (f->lines / p->partitions);
  if (f->axis == 0) return cell(p, copy, depth, first, 1);
  return f->axis == 1 ? cell(p, copy, first, depth, 1) : cell(p, copy, first, 1, depth);
}

static void post(const problem *p, face *f, int copy, int way, int message) {
  const int lines = f->lines / messages_per_face(p), tag = tag_of(p, f, copy, way, message);
  MPI_Request *request = &f->request[copy][way][message];
  if (way == kSend) {
    MPI_Isend(part_of(p, f, copy, way, message), lines, f->line, f->peer, tag, p->grid_comm,
              request);
  } else {
    MPI_Irecv(part_of(p, f, copy, way, message), lines, f->line, f->peer, tag, p->grid_comm,
              request);
  }
}

/* Called by the partition's thread: tests whether these ghost cells have arrived. */
static int arrived(problem *p, face *f, int step, int partition) {
  int flag = 1;
  if (step == 0) return 1; /* the ghost cells of step 0 are initial values */
  MPI_Request *requests = f->request[step % 2][kReceive];
  if (p->mode == kPartitioned) MPI_Parrived(*requests, partition, &flag);
  if (p->mode == kMultiple) MPI_Test(&requests[partition], &flag, MPI_STATUS_IGNORE);
  if (flag) trace_mark(&f->received, step - 1, partition);
  return flag;
}

/* Called by the partition's thread: releases these cells of the next step. */
static void ready(problem *p, face *f, int step, int partition) {
  if (step + 1 == p->steps) return;
  trace_mark(&f->sent, step, partition);
  if (p->mode == kPartitioned) MPI_Pready(partition, *f->request[(step + 1) % 2][kSend]);
  if (p->mode == kMultiple) post(p, f, (step + 1) % 2, kSend, partition);
}

/* Called by one thread: starts the receives and sends of the ghost cells that `step` produces. */
static void begin_round(problem *p, int step) {
  const int copy = (step + 1) % 2;
  if (step + 1 >= p->steps) return;
  for (face *f = p->faces; f < p->faces + 6; ++f) {
    trace_mark(&f->received, step, TRACE_START);
    trace_mark(&f->sent, step, TRACE_START);
    if (p->mode == kPartitioned) {
      MPI_Start(f->request[copy][kReceive]);
      MPI_Start(f->request[copy][kSend]);
    } else {
      for (int i = 0; i < messages_per_face(p); ++i) post(p, f, copy, kReceive, i);
    }
  }
}

/* Called by one thread: completes the requests that carried the ghost cells of `step`. */
static void end_round(problem *p, int step) {
  if (step == 0) return;
  for (face *f = p->faces; f < p->faces + 6; ++f) {
    for (int way = kReceive; way <= kSend; ++way) {
      trace_channel *channel = way == kSend ? &f->sent : &f->received;
      trace_mark(channel, step - 1, TRACE_WAIT);
      MPI_Waitall(messages_per_face(p), f->request[step % 2][way], MPI_STATUSES_IGNORE);
      trace_mark(channel, step - 1, TRACE_DONE);
    }
  }
}

/* ---- one step ---- */

static int ghosts_arrived(problem *p, int step, int partition) {
  int all = 1;
  for (face *f = p->faces; f < p->faces + 6; ++f) {
    if (f->axis > 0) {
      all &= arrived(p, f, step, partition);
    } else if (partition == (f->high ? p->partitions - 1 : 0)) {
      for (int i = 0; i < p->partitions; ++i) all &= arrived(p, f, step, i);
    }
  }
  return all;
}

static void check_partition(problem *p, int step, int partition) {
  if (step == 0) return;
  for (face *f = p->faces; f < p->faces + 6; ++f) {
    if (f->axis > 0) {
      check_ghosts(p, f, step, partition);
    } else if (partition == (f->high ? p->partitions - 1 : 0)) {
      for (int i = 0; i < p->partitions; ++i) check_ghosts(p, f, step, i);
    }
  }
}

/* Updates the planes of one partition and releases its part of every face. */
static void update_partition(problem *p, int step, int partition) {
  const int planes = p->n / p->partitions;
  for (int i = 1 + partition * planes; i < 1 + (partition + 1) * planes; ++i) {
    for (int part = 0; part < p->partitions; ++part) {
      for (int j = 1 + part * planes; j < 1 + (part + 1) * planes; ++j) update_line(p, step, i, j);
      if (i == 1) ready(p, &p->faces[0], step, part);
      if (i == p->n) ready(p, &p->faces[1], step, part);
    }
  }
  for (face *f = p->faces + 2; f < p->faces + 6; ++f) ready(p, f, step, partition);
}

static void do_step(problem *p, int step, int first, int last) {
  memset(p->updated + first, 0, (size_t)(last - first));
  for (int missing = last - first; missing > 0;) {
    const int before = missing;
    for (int partition = first; partition < last; ++partition) {
      if (p->updated[partition] || !ghosts_arrived(p, step, partition)) continue;
      check_partition(p, step, partition);
      update_partition(p, step, partition);
      p->updated[partition] = 1;
      --missing;
    }
    if (missing == before) sched_yield();
  }
#pragma omp barrier
#pragma omp single
  {
    if (p->mode == kSingle && step + 1 < p->steps) {
      for (face *f = p->faces; f < p->faces + 6; ++f) post(p, f, (step + 1) % 2, kSend, 0);
      end_round(p, step + 1);
    } else if (p->mode != kSingle) {
      end_round(p, step);
    }
    begin_round(p, step + 1);
  }
}

static void run(problem *p) {
  begin_round(p, 0);
#pragma omp parallel num_threads(p->threads)
  {
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    const int first = p->partitions * thread / threads,
              last = p->partitions * (thread + 1) / threads;
    const int late = p->late_ms > 0 && p->rank == p->late_rank && thread == threads - 1;
    const long late_ns = (long)(p->late_ms * 1e6);
    for (int step = 0; step < p->steps; ++step) {
      if (late) nanosleep(&(struct timespec){late_ns / 1000000000, late_ns % 1000000000}, NULL);
      do_step(p, step, first, last);
    }
  }
}

/* ---- set-up ---- */

/* A line of a face: its cells in one plane (axis 1, 2) or one row (axis 0). Its extent is the
 * distance to the next line in the grid. */
static MPI_Datatype line_type(const problem *p, int axis) {
  const MPI_Aint row = (MPI_Aint)(p->n + 2) * (MPI_Aint)sizeof(double);
  MPI_Datatype cells, line;
  if (axis == 2) {
    MPI_Type_vector(p->n, 1, p->n + 2, MPI_DOUBLE, &cells);
  } else {
    MPI_Type_contiguous(p->n, MPI_DOUBLE, &cells);
  }
  MPI_Type_create_resized(cells, 0, axis == 0 ? row : row * (p->n + 2), &line);
  MPI_Type_commit(&line);
  MPI_Type_free(&cells);
  return line;
}

static void open_face(problem *p, int axis, int high) {
  static const char *const kNames[] = {"-x", "+x", "-y", "+y", "-z", "+z"};
  face *f = &p->faces[2 * axis + high];
  const int rounds = p->steps - 1, opposite = 2 * axis + !high;
  int low_peer, high_peer;
  MPI_Cart_shift(p->grid_comm, axis, 1, &low_peer, &high_peer);
  *f = (face){.axis = axis, .high = high, .peer = high ? high_peer : low_peer, .lines = p->n};
  f->line = line_type(p, axis);
  trace_open(&f->received, p->trace, kNames[opposite], 0, f->peer, p->partitions, rounds);
  trace_open(&f->sent, p->trace, kNames[2 * axis + high], 1, f->peer, p->partitions, rounds);
  for (int i = 0; i < 4; ++i) {
    const int copy = i / 2, way = i % 2, count = p->n / p->partitions;
    MPI_Request *requests = malloc((size_t)p->partitions * sizeof *requests);
    for (int m = 0; m < p->partitions; ++m) requests[m] = MPI_REQUEST_NULL;
    f->request[copy][way] = requests;
    if (p->mode != kPartitioned) continue;
    double *buffer = part_of(p, f, copy, way, 0);
    const int tag = tag_of(p, f, copy, way, 0);
    if (way == kSend) {
      MPI_Psend_init(buffer, p->partitions, count, f->line, f->peer, tag, p->grid_comm,
                     MPI_INFO_NULL, requests);
    } else {
      MPI_Precv_init(buffer, p->partitions, count, f->line, f->peer, tag, p->grid_comm,
                     MPI_INFO_NULL, requests);
    }
  }
}

static void set_up(problem *p) {
  const int side = p->n + 2, periodic[] = {1, 1, 1};
  int ranks = 1;
  if (p->n % p->partitions) options_refuse("--partitions", "", "a divisor of --n");
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Dims_create(ranks, 3, p->ranks);
  MPI_Cart_create(MPI_COMM_WORLD, 3, p->ranks, periodic, 0, &p->grid_comm);
  MPI_Comm_rank(p->grid_comm, &p->rank);
  MPI_Cart_coords(p->grid_comm, p->rank, 3, p->place);
  for (int axis = 0; axis < 3; ++axis) {
    p->phase[axis] = malloc((size_t)side * sizeof *p->phase[axis]);
    for (int i = 0; i < side; ++i) {
      p->phase[axis][i] = cexp(2 * kPi * I * (p->place[axis] * p->n + i) / (p->n * p->ranks[axis]));
    }
  }
  for (int copy = 0; copy < 2; ++copy)
    p->grid[copy] = calloc((size_t)side * (size_t)side * (size_t)side, sizeof(double));
  for (int i = 0; i < side; ++i) {
    for (int j = 0; j < side; ++j) {
      for (int k = 0; k < side; ++k) *cell(p, 0, i, j, k) = shape(p, i, j, k);
    }
  }
  p->wrong = calloc((size_t)p->steps, 1);
  p->updated = calloc((size_t)p->partitions, 1);
  for (int i = 0; i < 6; ++i) open_face(p, i / 2, i % 2);
}

static void clean_up(problem *p) {
  for (face *f = p->faces; f < p->faces + 6; ++f) {
    for (int i = 0; i < 4; ++i) {
      MPI_Request *requests = f->request[i / 2][i % 2];
      if (p->mode == kPartitioned) MPI_Request_free(requests);
      free(requests);
    }
    MPI_Type_free(&f->line);
  }
  for (int axis = 0; axis < 3; ++axis) free(p->phase[axis]);
  free(p->grid[0]);
  free(p->grid[1]);
  free(p->wrong);
  free(p->updated);
  MPI_Comm_free(&p->grid_comm);
}

/* ---- the result ---- */

/* A number that depends on every bit of the field, but not on the use of threads and messages. */
static uint64_t checksum(const problem *p) {
  uint64_t sum = 0;
  for (int i = 1; i <= p->n; ++i) {
    for (int j = 1; j <= p->n; ++j) {
      uint64_t hash = 14695981039346656037u ^ (uint64_t)((p->rank * p->n + i) * p->n + j);
      for (int k = 1; k <= p->n; ++k) {
        uint64_t bits;
        memcpy(&bits, cell(p, p->steps % 2, i, j, k), sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
      }
      sum += hash;
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, p->grid_comm);
  return sum;
}

static double error(const problem *p) {
  const double scale = pow(decay_per_step(p), p->steps);
  double worst = 0;
  for (int i = 1; i <= p->n; ++i) {
    for (int j = 1; j <= p->n; ++j) {
      for (int k = 1; k <= p->n; ++k) {
        const double difference = fabs(*cell(p, p->steps % 2, i, j, k) - scale * shape(p, i, j, k));
        if (!(difference <= worst)) worst = difference;
      }
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_DOUBLE, MPI_MAX, p->grid_comm);
  return worst;
}

/* Prints the result on rank 0. Returns the exit status. */
static int report(problem *p, double seconds) {
  int wrong = 0;
  MPI_Allreduce(MPI_IN_PLACE, p->wrong, p->steps, MPI_UNSIGNED_CHAR, MPI_MAX, p->grid_comm);
  for (int step = 0; step < p->steps; ++step) wrong += p->wrong[step];
  const double worst = error(p);
  const uint64_t sum = checksum(p);
  const int failed = wrong > 0 || !(worst <= tolerance(p));
  if (p->rank == 0) {
    printf(
        "halo3d: %s: %.4f ms per step, error %.2e (limit %.2e), wrong data in %d of %d rounds, "
        "checksum %016" PRIx64 "\n",
        failed ? "FAILED" : "PASSED", seconds * 1e3 / p->steps, worst, tolerance(p), wrong,
        p->steps - 1, sum);
  }
  return failed;
}

int main(int argc, char **argv) {
  problem p = {.n = 64, .steps = 50, .threads = 4};
  const option table[] = {
      {"n", kInt, &p.n, 1, 2048, NULL, "cells per rank along each axis"},
      {"steps", kInt, &p.steps, 1, 1 << 24, NULL, "time steps"},
      OPTION_THREADS(&p.threads),
      {"partitions", kInt, &p.partitions, 0, 2048, NULL, "partitions of a face, 0: one per thread"},
      {"late-ms", kReal, &p.late_ms, 0, 60000, NULL,
       "the last thread of --late-rank sleeps so long in each step"},
      OPTION_LATE_RANK(&p.late_rank),
      {"mode", kWord, &p.mode, 0, 0, "partitioned|single|multiple", "how faces travel:"},
      OPTION_TRACE(&p.trace),
  };
  options_start(&argc, &argv,
                "halo3d: 7-point stencil, six strided faces, MPI + OpenMP, partitioned", table,
                sizeof table / sizeof *table);
  if (p.partitions == 0) p.partitions = p.threads;
  set_up(&p);
  MPI_Barrier(p.grid_comm);
  const double begin = MPI_Wtime();
  run(&p);
  int failed = report(&p, MPI_Wtime() - begin);
  trace_channel *channels[12];
  for (int i = 0; i < 6; ++i) {
    channels[2 * i] = &p.faces[i].received;
    channels[2 * i + 1] = &p.faces[i].sent;
  }
  failed |= trace_write(p.trace, "halo3d", channels, 12);
  clean_up(&p);
  MPI_Finalize();
  return failed;
}
