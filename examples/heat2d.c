/* heat2d: the heat equation on a rectangle, with MPI, OpenMP and halo rows sent partition by
 * partition.
 *
 * Each rank owns a block of rows, each thread one or more strips of columns. The halo row between
 * two ranks is one partitioned message with one partition per strip. In a step a thread updates its
 * inner cells. Between blocks of rows it tests whether the halo of one of its strips has arrived
 * (MPI_Parrived). If so, it updates the edge cells of that strip and hands them to MPI at once
 * (MPI_Pready): only the threads that need the slowest thread's cells wait for it. For comparison,
 * --mode isend and persistent send the whole row after all threads have joined.
 *
 * Checks itself: the exact solution of the scheme is u = g^step sin(pi x / X) sin(pi y / Y). Each
 * arrived halo and the final field must equal it. The program compares the field with the solution
 * of the equation, too. Exit status 1 if wrong.
 *
 *     mpiexec -n 2 ./heat2d --n 1024 --threads 4 --late-ms 5
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <mpi.h>
#include <omp.h>
#include <sched.h>

#include "late.h"
#include "options.h"
#include "trace.h"

enum { kPartitioned, kIsend, kPersistent };
enum { kReceive, kSend };
enum { kBlockRows = 8 }; /* rows of inner cells between two tests for the halo */
static const double kPi = 3.14159265358979323846;
static const double kDiffusion = 0.25; /* time step / (cell size)^2; stable up to 0.25 */

/* The rows next to one neighbour. Requests exist twice, as the two copies of the grid take turns.
 */
typedef struct {
  int peer, ghost_row, edge_row;
  MPI_Request request[2][2]; /* [copy of the grid][kReceive, kSend] */
  unsigned char
      *updated; /* per strip: edge cells done in this step; written by the strip's thread */
  trace_channel received, sent;
} border;

typedef struct {
  int columns, rows, steps, threads, partitions, mode, late_rank;
  int seed;       /* 0: the late strip; otherwise threads are late at random */
  int late_strip; /* -1: no strip of this rank */
  double late_ms;
  const char *trace;
  int rank, first_row, own_rows; /* row 1 of the grid is row first_row of the whole rectangle */
  int inner_first, inner_last;   /* rows that need no halo */
  double *grid[2];               /* (own_rows + 2) x (columns + 2) cells */
  double *sin_x;                 /* shape of the solution along a row */
  unsigned char *wrong;          /* per round: 1 if a halo held wrong data */
  border borders[2];
  int border_count;
} problem;

/* ---- the equation ---- */

static double *row_of(const problem *p, int copy, int row) {
  return p->grid[copy] + (size_t)row * (size_t)(p->columns + 2);
}

static double sin_y(const problem *p, int row) {
  return sin(kPi * (p->first_row + row) / (p->rows + 1));
}

/* The factor by which one step of the scheme multiplies its first eigenfunction. */
static double decay_per_step(const problem *p) {
  const double sx = sin(kPi / 2 / (p->columns + 1)), sy = sin(kPi / 2 / (p->rows + 1));
  return 1 - 4 * kDiffusion * (sx * sx + sy * sy);
}

static void update(const problem *p, int step, int row, int first, int last) {
  const double *u = row_of(p, step % 2, row);
  const double *above = row_of(p, step % 2, row - 1), *below = row_of(p, step % 2, row + 1);
  double *restrict v = row_of(p, (step + 1) % 2, row);
  for (int j = first; j < last; ++j) {
    v[j] = u[j] + kDiffusion * (above[j] + below[j] + u[j - 1] + u[j + 1] - 4 * u[j]);
  }
}

static double tolerance(const problem *p) { return 1e-14 * (p->steps + 100); }

/* Compares the halo cells of one strip with the exact solution of the scheme. */
static void check_halo(problem *p, const border *b, int step, int strip) {
  const int width = p->columns / p->partitions, first = 1 + strip * width;
  const double *u = row_of(p, step % 2, b->ghost_row);
  const double scale = pow(decay_per_step(p), step) * sin_y(p, b->ghost_row);
  double worst = 0;
  for (int j = first; j < first + width; ++j) worst = fmax(worst, fabs(u[j] - scale * p->sin_x[j]));
  if (!(worst <= tolerance(p))) {
#pragma omp atomic write
    p->wrong[step - 1] = 1;
  }
}

/* Delays threads: the thread of the late strip, or all threads at random. */
static void be_late(const problem *p, const border *b, int step, int strip) {
  if (b != p->borders) return;
  if (p->seed != 0)
    late_sleep(p->late_ms * late_chance(p->seed, p->rank, step, strip) * p->threads /
               p->partitions);
  else if (strip == p->late_strip)
    late_sleep(p->late_ms);
}

/* ---- one step, partitioned ---- */

/* Updates and sends the edge cells of my strips with an arrived halo. Returns their number. */
static int update_edges(problem *p, int step, int first_strip, int last_strip) {
  const int width = p->columns / p->partitions;
  int updated = 0;
  for (border *b = p->borders; b < p->borders + p->border_count; ++b) {
    for (int strip = first_strip; strip < last_strip; ++strip) {
      if (b->updated[strip]) continue;
      if (step > 0) { /* the halo of step 0 is the initial value */
        int arrived = 0;
        MPI_Parrived(b->request[step % 2][kReceive], strip, &arrived);
        if (!arrived) continue;
        trace_mark(&b->received, step - 1, strip);
        check_halo(p, b, step, strip);
      }
      be_late(p, b, step, strip);
      update(p, step, b->edge_row, 1 + strip * width, 1 + (strip + 1) * width);
      if (step + 1 < p->steps) {
        trace_mark(&b->sent, step, strip);
        MPI_Pready(strip, b->request[(step + 1) % 2][kSend]);
      }
      b->updated[strip] = 1;
      ++updated;
    }
  }
  return updated;
}

/* Called by one thread: completes the round that carried this step's halos, and starts the next one
 * in its buffers. */
static void next_round(problem *p, int step) {
  for (border *b = p->borders; b < p->borders + p->border_count; ++b) {
    MPI_Request *requests = b->request[step % 2];
    if (step > 0) {
      trace_mark(&b->received, step - 1, TRACE_WAIT);
      trace_mark(&b->sent, step - 1, TRACE_WAIT);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
      trace_mark(&b->received, step - 1, TRACE_DONE);
      trace_mark(&b->sent, step - 1, TRACE_DONE);
    }
    if (step + 2 < p->steps) {
      trace_mark(&b->received, step + 1, TRACE_START);
      trace_mark(&b->sent, step + 1, TRACE_START);
      MPI_Startall(2, requests);
    }
  }
}

static void step_partitioned(problem *p, int step, int first_strip, int last_strip) {
  const int width = p->columns / p->partitions;
  int missing = p->border_count * (last_strip - first_strip);
  for (int i = 0; i < p->border_count; ++i) {
    memset(p->borders[i].updated + first_strip, 0, (size_t)(last_strip - first_strip));
  }
  for (int row = p->inner_first; row <= p->inner_last; ++row) {
    update(p, step, row, 1 + first_strip * width, 1 + last_strip * width);
    if (row % kBlockRows == 0) missing -= update_edges(p, step, first_strip, last_strip);
  }
  while (missing > 0) {
    const int updated = update_edges(p, step, first_strip, last_strip);
    if (updated == 0) sched_yield();
    missing -= updated;
  }
#pragma omp barrier
#pragma omp single
  next_round(p, step);
}

/* ---- one step, with whole rows after the join ---- */

static void post_row(problem *p, int step, border *b) {
  MPI_Request *requests = b->request[(step + 1) % 2];
  trace_mark(&b->received, step, TRACE_START);
  trace_mark(&b->sent, step, TRACE_START);
  if (p->mode == kPersistent) {
    MPI_Startall(2, requests);
    return;
  }
  MPI_Irecv(row_of(p, (step + 1) % 2, b->ghost_row) + 1, p->columns, MPI_DOUBLE, b->peer, 0,
            MPI_COMM_WORLD, &requests[kReceive]);
  MPI_Isend(row_of(p, (step + 1) % 2, b->edge_row) + 1, p->columns, MPI_DOUBLE, b->peer, 0,
            MPI_COMM_WORLD, &requests[kSend]);
}

static void await_row(problem *p, int step, border *b) {
  trace_mark(&b->received, step - 1, TRACE_WAIT);
  MPI_Waitall(2, b->request[step % 2], MPI_STATUSES_IGNORE);
  trace_mark(&b->received, step - 1, TRACE_DONE);
  for (int strip = 0; strip < p->partitions; ++strip) {
    trace_mark(&b->received, step - 1, strip);
    check_halo(p, b, step, strip);
  }
}

static void step_joined(problem *p, int step, int first_strip, int last_strip) {
  const int width = p->columns / p->partitions;
  for (int row = p->inner_first; row <= p->inner_last; ++row) {
    update(p, step, row, 1 + first_strip * width, 1 + last_strip * width);
  }
#pragma omp barrier
#pragma omp single
  for (int i = 0; i < p->border_count && step > 0; ++i) await_row(p, step, &p->borders[i]);
  for (int i = 0; i < p->border_count; ++i) {
    for (int strip = first_strip; strip < last_strip; ++strip) {
      be_late(p, &p->borders[i], step, strip);
      update(p, step, p->borders[i].edge_row, 1 + strip * width, 1 + (strip + 1) * width);
      if (step + 1 < p->steps) trace_mark(&p->borders[i].sent, step, strip);
    }
  }
#pragma omp barrier
#pragma omp single
  for (int i = 0; i < p->border_count && step + 1 < p->steps; ++i)
    post_row(p, step, &p->borders[i]);
}

/* ---- set-up ---- */

static void open_requests(problem *p, border *b, int copy) {
  double *ghost = row_of(p, copy, b->ghost_row) + 1, *edge = row_of(p, copy, b->edge_row) + 1;
  const int width = p->columns / p->partitions;
  MPI_Request *requests = b->request[copy];
  requests[kReceive] = requests[kSend] = MPI_REQUEST_NULL;
  if (p->mode == kPartitioned) {
    MPI_Precv_init(ghost, p->partitions, width, MPI_DOUBLE, b->peer, copy, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &requests[kReceive]);
    MPI_Psend_init(edge, p->partitions, width, MPI_DOUBLE, b->peer, copy, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &requests[kSend]);
  } else if (p->mode == kPersistent) {
    MPI_Recv_init(ghost, p->columns, MPI_DOUBLE, b->peer, copy, MPI_COMM_WORLD,
                  &requests[kReceive]);
    MPI_Send_init(edge, p->columns, MPI_DOUBLE, b->peer, copy, MPI_COMM_WORLD, &requests[kSend]);
  }
}

static void open_border(problem *p, int peer, int ghost_row, int edge_row) {
  border *b = &p->borders[p->border_count++];
  *b = (border){.peer = peer, .ghost_row = ghost_row, .edge_row = edge_row};
  b->updated = calloc((size_t)p->partitions, 1);
  const int rounds = p->steps - 1;
  const char *const away = peer > p->rank ? "down" : "up", *const back =
                                                               peer > p->rank ? "up" : "down";
  trace_open(&b->received, p->trace, back, 0, peer, p->partitions, rounds);
  trace_open(&b->sent, p->trace, away, 1, peer, p->partitions, rounds);
  open_requests(p, b, 0);
  open_requests(p, b, 1);
}

static void set_up(problem *p) {
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (p->columns % p->partitions) options_refuse("--partitions", "", "a divisor of --n");
  if (p->rows < 2 * ranks) options_refuse("--rows", "", "at least two rows per rank");
  const int begin = (int)((long)p->rows * p->rank / ranks);
  const int end = (int)((long)p->rows * (p->rank + 1) / ranks);
  p->late_strip = p->rank == p->late_rank && p->late_ms > 0
                      ? p->partitions * (p->threads - 1) / p->threads
                      : -1;
  p->first_row = begin;
  p->own_rows = end - begin;
  p->sin_x = malloc((size_t)(p->columns + 2) * sizeof *p->sin_x);
  p->wrong = calloc((size_t)p->steps, 1);
  for (int j = 0; j <= p->columns + 1; ++j) p->sin_x[j] = sin(kPi * j / (p->columns + 1));
  p->sin_x[0] = p->sin_x[p->columns + 1] = 0;
  for (int copy = 0; copy < 2; ++copy) {
    p->grid[copy] = calloc((size_t)(p->own_rows + 2) * (size_t)(p->columns + 2), sizeof(double));
  }
  for (int row = 0; row <= p->own_rows + 1; ++row) {
    const int boundary = p->first_row + row == 0 || p->first_row + row == p->rows + 1;
    const double height = boundary ? 0 : sin_y(p, row);
    for (int j = 0; j <= p->columns + 1; ++j) row_of(p, 0, row)[j] = height * p->sin_x[j];
  }
  const int upper = p->rank > 0, lower = p->rank + 1 < ranks;
  p->inner_first = upper ? 2 : 1;
  p->inner_last = lower ? p->own_rows - 1 : p->own_rows;
  if (upper) open_border(p, p->rank - 1, 0, 1);
  if (lower) open_border(p, p->rank + 1, p->own_rows + 1, p->own_rows);
}

static void run(problem *p) {
  for (int i = 0; i < p->border_count && p->mode == kPartitioned && p->steps > 1; ++i) {
    trace_mark(&p->borders[i].received, 0, TRACE_START);
    trace_mark(&p->borders[i].sent, 0, TRACE_START);
    MPI_Startall(2, p->borders[i].request[1]);
  }
#pragma omp parallel num_threads(p->threads)
  {
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    const int first = p->partitions * thread / threads,
              last = p->partitions * (thread + 1) / threads;
    for (int step = 0; step < p->steps; ++step) {
      if (p->mode == kPartitioned) {
        step_partitioned(p, step, first, last);
      } else {
        step_joined(p, step, first, last);
      }
    }
  }
}

/* ---- the result ---- */

/* A number that depends on every bit of the field, but not on its distribution over ranks. */
static uint64_t checksum(const problem *p) {
  uint64_t sum = 0;
  for (int row = 1; row <= p->own_rows; ++row) {
    uint64_t hash = 14695981039346656037u ^ (uint64_t)(p->first_row + row);
    for (int j = 1; j <= p->columns; ++j) {
      uint64_t bits;
      memcpy(&bits, &row_of(p, p->steps % 2, row)[j], sizeof bits);
      hash = (hash ^ bits) * 1099511628211u;
    }
    sum += hash;
  }
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

/* Largest differences: [0] to the solution of the equation, [1] to the exact solution of the
 * scheme. */
static void errors(const problem *p, double worst[2]) {
  const int shorter = p->columns < p->rows ? p->columns : p->rows;
  const double h = 1.0 / (shorter + 1), width = (p->columns + 1) * h, height = (p->rows + 1) * h;
  const double time = p->steps * kDiffusion * h * h;
  const double equation = exp(-kPi * kPi * (1 / (width * width) + 1 / (height * height)) * time);
  const double scheme = pow(decay_per_step(p), p->steps);
  worst[0] = worst[1] = 0;
  for (int row = 1; row <= p->own_rows; ++row) {
    const double *u = row_of(p, p->steps % 2, row);
    for (int j = 1; j <= p->columns; ++j) {
      const double shape = sin_y(p, row) * p->sin_x[j];
      const double to_equation = fabs(u[j] - equation * shape),
                   to_scheme = fabs(u[j] - scheme * shape);
      if (!(to_equation <= worst[0])) worst[0] = to_equation;
      if (!(to_scheme <= worst[1])) worst[1] = to_scheme;
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, worst, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static int wrong_rounds(problem *p) {
  MPI_Allreduce(MPI_IN_PLACE, p->wrong, p->steps, MPI_UNSIGNED_CHAR, MPI_MAX, MPI_COMM_WORLD);
  int rounds = 0;
  for (int step = 0; step < p->steps; ++step) rounds += p->wrong[step];
  return rounds;
}

/* Prints the result on rank 0. Returns the exit status. */
static int report(problem *p, double seconds) {
  const int shorter = p->columns < p->rows ? p->columns : p->rows;
  const double limit = 1.0 / shorter / shorter;
  double worst[2];
  errors(p, worst);
  const int wrong = wrong_rounds(p);
  const uint64_t sum = checksum(p);
  const int failed = !(worst[0] <= limit) || !(worst[1] <= tolerance(p)) || wrong > 0;
  if (p->rank == 0) {
    printf(
        "heat2d: %s: %.4f ms per step, error %.2e (limit %.2e), to the scheme's exact solution "
        "%.2e (limit %.2e), "
        "wrong data in %d of %d rounds, checksum %016" PRIx64 "\n",
        failed ? "FAILED" : "PASSED", seconds * 1e3 / p->steps, worst[0], limit, worst[1],
        tolerance(p), wrong, p->steps - 1, sum);
  }
  return failed;
}

static void clean_up(problem *p) {
  for (border *b = p->borders; b < p->borders + p->border_count; ++b) {
    for (int i = 0; i < 4; ++i) {
      MPI_Request *request = &b->request[i / 2][i % 2];
      if (*request != MPI_REQUEST_NULL) MPI_Request_free(request);
    }
    free(b->updated);
  }
  free(p->grid[0]);
  free(p->grid[1]);
  free(p->sin_x);
  free(p->wrong);
}

int main(int argc, char **argv) {
  problem p = {.columns = 1024, .steps = 100, .threads = 4, .partitions = 0};
  const option table[] = {
      {"n", kInt, &p.columns, 1, 1 << 20, NULL,
       "columns of cells, and rows unless --rows is given"},
      {"rows", kInt, &p.rows, 0, 1 << 20, NULL, "rows of cells, 0: as many as columns"},
      {"steps", kInt, &p.steps, 1, 1 << 24, NULL, "time steps"},
      OPTION_THREADS(&p.threads),
      {"partitions", kInt, &p.partitions, 0, 65536, NULL,
       "partitions of a halo row, 0: one per thread"},
      {"late-ms", kReal, &p.late_ms, 0, 60000, NULL,
       "the last thread of --late-rank sleeps so long before its edge cells"},
      OPTION_SEED(&p.seed),
      OPTION_LATE_RANK(&p.late_rank),
      {"mode", kWord, &p.mode, 0, 0, "partitioned|isend|persistent", "how halo rows travel:"},
      OPTION_TRACE(&p.trace),
  };
  options_start(&argc, &argv, "heat2d: heat equation, MPI + OpenMP, partitioned halo exchange",
                table, sizeof table / sizeof *table);
  if (p.rows == 0) p.rows = p.columns;
  if (p.partitions == 0) p.partitions = p.threads;
  set_up(&p);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  run(&p);
  int failed = report(&p, MPI_Wtime() - begin);
  trace_channel *channels[4];
  for (int i = 0; i < p.border_count; ++i) {
    channels[2 * i] = &p.borders[i].received;
    channels[2 * i + 1] = &p.borders[i].sent;
  }
  failed |= trace_write(p.trace, "heat2d", channels, 2 * p.border_count);
  clean_up(&p);
  MPI_Finalize();
  return failed;
}
