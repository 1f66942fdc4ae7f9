/* snap: the sweep of SNAP, LANL's proxy of neutral particle transport, in plain messages and in
 * partitioned calls.
 *
 * Ranks form a grid in y and z; each has all cells in x. A sweep crosses the cells from the four
 * corners of the y-z plane, one after the other. From each corner it goes backwards in x, then
 * forwards, chunk by chunk (KBA). A rank needs the outflow of its two upstream neighbours for each
 * chunk. Threads share the energy groups: a thread computes all angles and chunks of its own
 * groups.
 *
 * --mode multiple     the original: the thread of a group receives, computes and sends that group,
 *                     a message a group (SNAP with MPI_THREAD_MULTIPLE).
 * --mode funneled     one thread receives all groups in one message and sends them in one after
 *                     the join.
 * --mode partitioned  one partitioned message a chunk and face, one partition a group: no join and
 *                     no barrier from the first chunk of a sweep to the last.
 * --mode all          each of them in turn, sweep by sweep; their results must be equal to the bit.
 *
 * Differences from SNAP: one material, isotropic scattering within the group, no fix-up, no time
 * steps. The arithmetic of a cell and the order of chunks and of messages are SNAP's (dim3_sweep).
 * With --check serial each rank also solves the whole problem without messages and compares its
 * cells. Exit status 1 if a result differs.
 *
 *     mpiexec -n 4 ./snap --threads 2 --groups 8
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <omp.h>
#include <sched.h>

#include "late.h"
#include "options.h"

enum { kMultiple, kFunneled, kPartitioned, kModes, kAll = kModes };
enum { kY, kZ };
enum { kCorners = 4, kSamples = 4096 };
static const char *const kModeNames[] = {"multiple", "funneled", "partitioned"};

/* One face of one chunk of one corner: the inflow from upstream, the outflow to downstream. */
typedef struct {
  int upstream, downstream; /* ranks, MPI_PROC_NULL at the border */
  double *in, *out;         /* [group][cell in x][cell along the face][angle] */
} face;

typedef struct {
  int nx, cells[2], all[2]; /* cells of this rank; all: of the whole problem; in y and z */
  int chunk, angles, groups, threads, sweeps, late_rank, seed;
  double late_ms;
  int rank, ranks, place[2], grid[2];
} problem;

/* The state of one solution. */
typedef struct {
  const problem *p;
  int mode, sweep;
  face *faces;           /* [corner][chunk][axis] */
  double *flux, *source; /* [group][z][y][x] */
  double *edge;          /* [group][z][y][angle]: flux that leaves a chunk in x */
  MPI_Request *requests; /* kPartitioned: [corner][chunk][axis][in, out], some null */
  MPI_Request *active;   /* those that are not null */
  int active_count;
  double samples_ms[kSamples];
} solution;

static int chunks(const problem *p) { return 2 * (p->nx / p->chunk); }
static size_t group_cells(const problem *p) {
  return (size_t)p->nx * (size_t)p->cells[kY] * (size_t)p->cells[kZ];
}
/* Doubles of one group in a face. */
static int length(const problem *p, int axis) { return p->angles * p->chunk * p->cells[1 - axis]; }
static int index_of(const problem *p, int corner, int chunk, int axis) {
  return (corner * chunks(p) + chunk) * 2 + axis;
}

/* ---- one chunk of one group ---- */

/* Cosines and weight of an angle, as SNAP sets them up without a quadrature table (sn.c). */
static double mu_of(const problem *p, int angle) { return (angle + 0.5) / p->angles; }
static double eta_of(const problem *p, int angle) {
  return 1 - 0.5 / p->angles - (double)angle / p->angles;
}
static double xi_of(const problem *p, int angle) {
  const double mu = mu_of(p, angle), eta = eta_of(p, angle);
  return sqrt(1 - (mu * mu + eta * eta) > 0 ? 1 - (mu * mu + eta * eta) : 0.01);
}

/* Total cross section and share of scattering within the group. */
static double total_of(int group) { return 1 + 0.01 * group; }
static double scatter_of(int group) { return 0.5 * total_of(group) / (1 + 0.1 * group); }

/* Cells along the sweep: the i-th of n, backwards or not. */
static int along(int i, int n, int backwards) { return backwards ? n - 1 - i : i; }

/* Diamond difference: `x`, `y` and `z` are the edges' fluxes upstream, and downstream after it. */
static double compute_cell(const problem *p, const double *factors, double q, double *x, double *y,
                           double *z) {
  const int angles = p->angles;
  const double *hi = factors, *hj = hi + angles, *hk = hj + angles, *inverse = hk + angles;
  double sum = 0;
  for (int a = 0; a < angles; ++a) {
    const double psi = (q + x[a] * hi[a] + y[a] * hj[a] + z[a] * hk[a]) * inverse[a];
    x[a] = 2 * psi - x[a];
    y[a] = 2 * psi - y[a];
    z[a] = 2 * psi - z[a];
    sum += psi;
  }
  return sum / (8 * angles);
}

/* 2 mu / dx, 2 eta / dy, 2 xi / dz, and the inverse of their sum with the cross section. */
static void factors_of(const problem *p, int group, double *factors) {
  for (int a = 0; a < p->angles; ++a) {
    const double hi = 2 * mu_of(p, a) * p->nx, hj = 2 * eta_of(p, a) * p->all[kY],
                 hk = 2 * xi_of(p, a) * p->all[kZ];
    factors[a] = hi;
    factors[p->angles + a] = hj;
    factors[2 * p->angles + a] = hk;
    factors[3 * p->angles + a] = 1 / (total_of(group) + hi + hj + hk);
  }
}

/* Takes the inflow of one axis, zero at the border, as the beginning of the outflow. */
static double *take_inflow(const problem *p, face *f, int axis, int group) {
  const size_t count = (size_t)length(p, axis), at = (size_t)group * count;
  if (f->upstream == MPI_PROC_NULL)
    memset(f->out + at, 0, count * sizeof(double));
  else
    memcpy(f->out + at, f->in + at, count * sizeof(double));
  return f->out + at;
}

static void compute(solution *s, int corner, int chunk, int group) {
  const problem *p = s->p;
  const int ny = p->cells[kY], nz = p->cells[kZ], half = chunks(p) / 2, forward = chunk >= half;
  const size_t angles = (size_t)p->angles;
  double *edge = s->edge + (size_t)group * (size_t)(ny * nz) * angles;
  double factors[4 * angles];
  double *out_y = take_inflow(p, &s->faces[index_of(p, corner, chunk, kY)], kY, group);
  double *out_z = take_inflow(p, &s->faces[index_of(p, corner, chunk, kZ)], kZ, group);
  factors_of(p, group, factors);
  if (chunk % half == 0) memset(edge, 0, (size_t)(ny * nz) * angles * sizeof(double));
  for (int iz = 0; iz < nz; ++iz) {
    const int z = along(iz, nz, !(corner >> 1));
    for (int iy = 0; iy < ny; ++iy) {
      const int y = along(iy, ny, !(corner & 1));
      for (int ix = 0; ix < p->chunk; ++ix) {
        const int x = along(chunk % half * p->chunk + ix, p->nx, !forward);
        const size_t cell = (size_t)group * group_cells(p) + (size_t)((z * ny + y) * p->nx + x);
        s->flux[cell] += compute_cell(
            p, factors, s->source[cell], edge + (size_t)(z * ny + y) * angles,
            out_y + (size_t)(ix * nz + z) * angles, out_z + (size_t)(ix * ny + y) * angles);
      }
    }
  }
}

/* Sets the next sweep's source, fixed plus scattered. Called by the group's thread. */
static void set_source(solution *s, int group) {
  const size_t first = (size_t)group * group_cells(s->p);
  for (size_t i = first; i < first + group_cells(s->p); ++i) {
    s->source[i] = 1 + scatter_of(group) * s->flux[i];
    s->flux[i] = 0;
  }
}

/* ---- messages ---- */

static int tag_of(const problem *p, int corner, int chunk, int axis, int group) {
  return index_of(p, corner, chunk, axis) * p->groups + group;
}

/* Receives `groups` groups from `first` of both faces. */
static void receive(solution *s, int corner, int chunk, int first, int groups) {
  for (int axis = kY; axis <= kZ; ++axis) {
    face *f = &s->faces[index_of(s->p, corner, chunk, axis)];
    const int count = length(s->p, axis);
    if (f->upstream == MPI_PROC_NULL) continue;
    MPI_Recv(f->in + (size_t)first * (size_t)count, groups * count, MPI_DOUBLE, f->upstream,
             tag_of(s->p, corner, chunk, axis, first), MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static void transmit(solution *s, int corner, int chunk, int first, int groups) {
  for (int axis = kY; axis <= kZ; ++axis) {
    face *f = &s->faces[index_of(s->p, corner, chunk, axis)];
    const int count = length(s->p, axis);
    if (f->downstream == MPI_PROC_NULL) continue;
    MPI_Send(f->out + (size_t)first * (size_t)count, groups * count, MPI_DOUBLE, f->downstream,
             tag_of(s->p, corner, chunk, axis, first), MPI_COMM_WORLD);
  }
}

/* ---- a chunk in each form; called by all threads ---- */

static void delay(const solution *s, int corner, int chunk) {
  const problem *p = s->p;
  const int thread = omp_get_thread_num();
  if (p->seed != 0)
    late_sleep(p->late_ms * late_chance(p->seed, p->rank,
                                        (s->sweep * kCorners + corner) * chunks(p) + chunk,
                                        thread));
  else if (p->rank == p->late_rank && thread == omp_get_num_threads() - 1)
    late_sleep(p->late_ms);
}

static void chunk_multiple(solution *s, int corner, int chunk) {
  delay(s, corner, chunk);
  for (int g = omp_get_thread_num(); g < s->p->groups; g += omp_get_num_threads()) {
    receive(s, corner, chunk, g, 1);
    compute(s, corner, chunk, g);
    transmit(s, corner, chunk, g, 1);
  }
}

static void chunk_funneled(solution *s, int corner, int chunk) {
#pragma omp single
  receive(s, corner, chunk, 0, s->p->groups);
  delay(s, corner, chunk);
  for (int g = omp_get_thread_num(); g < s->p->groups; g += omp_get_num_threads())
    compute(s, corner, chunk, g);
#pragma omp barrier
#pragma omp single
  transmit(s, corner, chunk, 0, s->p->groups);
}

static MPI_Request *request(solution *s, int corner, int chunk, int axis, int is_send) {
  return &s->requests[index_of(s->p, corner, chunk, axis) * 2 + is_send];
}

static int arrived(solution *s, int corner, int chunk, int group) {
  for (int axis = kY; axis <= kZ; ++axis) {
    MPI_Request *r = request(s, corner, chunk, axis, 0);
    int flag = 1;
    if (*r != MPI_REQUEST_NULL) MPI_Parrived(*r, group, &flag);
    if (!flag) return 0;
  }
  return 1;
}

/* A thread takes its groups in the order of their arrival. */
static void chunk_partitioned(solution *s, int corner, int chunk) {
  const int first = omp_get_thread_num(), step = omp_get_num_threads();
  unsigned char computed[4096] = {0};
  delay(s, corner, chunk);
  for (int missing = (s->p->groups - first + step - 1) / step; missing > 0;) {
    const int before = missing;
    for (int g = first; g < s->p->groups; g += step) {
      if (computed[g] || !arrived(s, corner, chunk, g)) continue;
      compute(s, corner, chunk, g);
      for (int axis = kY; axis <= kZ; ++axis) {
        MPI_Request *r = request(s, corner, chunk, axis, 1);
        if (*r != MPI_REQUEST_NULL) MPI_Pready(g, *r);
      }
      computed[g] = 1;
      --missing;
    }
    if (missing == before) sched_yield();
  }
}

static void sweep(solution *s) {
  const problem *p = s->p;
  MPI_Startall(s->active_count, s->active);
#pragma omp parallel num_threads(p->threads)
  {
    for (int g = omp_get_thread_num(); g < p->groups; g += omp_get_num_threads()) set_source(s, g);
    for (int corner = 0; corner < kCorners; ++corner) {
      for (int chunk = 0; chunk < chunks(p); ++chunk) {
        if (s->mode == kMultiple) chunk_multiple(s, corner, chunk);
        if (s->mode == kFunneled) chunk_funneled(s, corner, chunk);
        if (s->mode == kPartitioned) chunk_partitioned(s, corner, chunk);
      }
    }
  }
  MPI_Waitall(s->active_count, s->active, MPI_STATUSES_IGNORE);
  ++s->sweep;
}

/* ---- set-up ---- */

static int neighbour(const problem *p, int axis, int step) {
  const int to = p->place[axis] + step;
  if (to < 0 || to >= p->grid[axis]) return MPI_PROC_NULL;
  return p->rank + step * (axis == kY ? p->grid[kZ] : 1);
}

static void open_face(solution *s, int corner, int chunk, int axis) {
  const problem *p = s->p;
  const int step = corner >> axis & 1 ? 1 : -1, count = length(p, axis);
  const size_t all = (size_t)p->groups * (size_t)count;
  face *f = &s->faces[index_of(p, corner, chunk, axis)];
  MPI_Request *in = request(s, corner, chunk, axis, 0), *out = in + 1;
  f->upstream = neighbour(p, axis, -step);
  f->downstream = neighbour(p, axis, step);
  f->in = calloc(all, sizeof(double));
  f->out = calloc(all, sizeof(double));
  *in = *out = MPI_REQUEST_NULL;
  if (s->mode != kPartitioned) return;
  const int tag = tag_of(p, corner, chunk, axis, 0);
  if (f->upstream != MPI_PROC_NULL) {
    MPI_Precv_init(f->in, p->groups, count, MPI_DOUBLE, f->upstream, tag, MPI_COMM_WORLD,
                   MPI_INFO_NULL, in);
    s->active[s->active_count++] = *in;
  }
  if (f->downstream != MPI_PROC_NULL) {
    MPI_Psend_init(f->out, p->groups, count, MPI_DOUBLE, f->downstream, tag, MPI_COMM_WORLD,
                   MPI_INFO_NULL, out);
    s->active[s->active_count++] = *out;
  }
}

static solution *open_solution(const problem *p, int mode) {
  solution *s = calloc(1, sizeof *s);
  const size_t faces = (size_t)(kCorners * chunks(p) * 2);
  const size_t cells = (size_t)p->groups * group_cells(p);
  s->p = p;
  s->mode = mode;
  s->faces = calloc(faces, sizeof *s->faces);
  s->requests = malloc(2 * faces * sizeof(MPI_Request));
  s->active = malloc(2 * faces * sizeof(MPI_Request));
  s->flux = calloc(cells, sizeof(double));
  s->source = calloc(cells, sizeof(double));
  s->edge = calloc(cells / (size_t)p->nx * (size_t)p->angles, sizeof(double));
  for (int i = 0; i < kCorners * chunks(p) * 2; ++i)
    open_face(s, i / 2 / chunks(p), i / 2 % chunks(p), i % 2);
  return s;
}

static void close_solution(solution *s) {
  for (int i = 0; i < s->active_count; ++i) MPI_Request_free(&s->active[i]);
  for (int i = 0; i < kCorners * chunks(s->p) * 2; ++i) {
    free(s->faces[i].in);
    free(s->faces[i].out);
  }
  free(s->faces);
  free(s->requests);
  free(s->active);
  free(s->flux);
  free(s->source);
  free(s->edge);
  free(s);
}

/* ---- the program ---- */

/* Counts the rows of `s` that differ from those of `other`, which begin at `first_y`, `first_z`. */
static int64_t differing(const solution *s, const solution *other, int first_y, int first_z) {
  const problem *p = s->p, *q = other->p;
  int64_t count = 0;
  for (int g = 0; g < p->groups; ++g) {
    for (int z = 0; z < p->cells[kZ]; ++z) {
      for (int y = 0; y < p->cells[kY]; ++y) {
        const size_t row = (size_t)g * group_cells(p) + (size_t)((z * p->cells[kY] + y) * p->nx);
        const size_t there = (size_t)g * group_cells(q) +
                             (size_t)(((first_z + z) * q->cells[kY] + first_y + y) * p->nx);
        count += memcmp(s->flux + row, other->flux + there, (size_t)p->nx * sizeof(double)) != 0;
      }
    }
  }
  return count;
}

/* Solves the whole problem on this rank alone, and compares its cells. */
static int64_t check_serially(const problem *p, const solution *s) {
  problem whole = *p;
  for (int axis = kY; axis <= kZ; ++axis) {
    whole.grid[axis] = 1;
    whole.place[axis] = 0;
    whole.cells[axis] = p->all[axis];
  }
  whole.late_ms = 0;
  solution *reference = open_solution(&whole, kMultiple);
  for (int i = 0; i < p->sweeps; ++i) sweep(reference);
  const int64_t wrong =
      differing(s, reference, p->place[kY] * p->cells[kY], p->place[kZ] * p->cells[kZ]);
  close_solution(reference);
  return wrong;
}

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Median of the sweeps, without the first one, of the slowest rank. */
static double median_ms(solution *s, int sweeps) {
  double *samples = s->samples_ms + (sweeps > 1);
  const int count = sweeps - (sweeps > 1);
  MPI_Allreduce(MPI_IN_PLACE, samples, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(samples, (size_t)count, sizeof *samples, compare_doubles);
  return samples[count / 2];
}

/* A number that depends on every bit of the flux. */
static uint64_t checksum(const solution *s) {
  const problem *p = s->p;
  uint64_t sum = 0;
  for (size_t i = 0; i < (size_t)p->groups * group_cells(p); ++i) {
    uint64_t bits;
    memcpy(&bits, &s->flux[i], sizeof bits);
    sum += bits * (2 * i + 1);
  }
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

/* Runs the sweeps of each chosen mode in turns. Returns whether a result differs. */
static int run(const problem *p, int mode, int check) {
  const int first = mode == kAll ? 0 : mode, last = mode == kAll ? kModes - 1 : mode;
  solution *forms[kModes] = {0};
  int64_t wrong = 0;
  for (int m = first; m <= last; ++m) forms[m] = open_solution(p, m);
  for (int i = 0; i < p->sweeps; ++i) {
    for (int m = first; m <= last; ++m) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      sweep(forms[m]);
      forms[m]->samples_ms[i] = (MPI_Wtime() - start) * 1e3;
    }
  }
  for (int m = first + 1; m <= last; ++m) wrong += differing(forms[m], forms[first], 0, 0);
  if (check) wrong += check_serially(p, forms[first]);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (int m = first; m <= last; ++m) {
    const double ms = median_ms(forms[m], p->sweeps);
    const uint64_t sum = checksum(forms[m]);
    if (p->rank == 0)
      printf("snap: %s: %s: %.4f ms per sweep, %" PRId64 " rows differ, checksum %016" PRIx64 "\n",
             kModeNames[m], wrong ? "FAILED" : "PASSED", ms, wrong, sum);
    close_solution(forms[m]);
  }
  return wrong > 0;
}

/* Divides the cells among the ranks. */
static void set_up(problem *p) {
  MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &p->ranks);
  MPI_Dims_create(p->ranks, 2, p->grid);
  p->place[kY] = p->rank / p->grid[kZ];
  p->place[kZ] = p->rank % p->grid[kZ];
  if (p->nx % p->chunk) options_refuse("--chunk", "", "a divisor of --nx");
  if (p->all[kY] % p->grid[kY]) options_refuse("--ny", "", "a multiple of the ranks in y");
  if (p->all[kZ] % p->grid[kZ]) options_refuse("--nz", "", "a multiple of the ranks in z");
  for (int axis = kY; axis <= kZ; ++axis) p->cells[axis] = p->all[axis] / p->grid[axis];
}

int main(int argc, char **argv) {
  problem p = {
      .nx = 16, .all = {16, 16}, .chunk = 4, .angles = 12, .groups = 8, .threads = 2, .sweeps = 10};
  int mode = kAll, check = 0;
  const option table[] = {
      {"nx", kInt, &p.nx, 1, 4096, NULL, "cells in x"},
      {"ny", kInt, &p.all[kY], 1, 4096, NULL, "cells in y, of all ranks"},
      {"nz", kInt, &p.all[kZ], 1, 4096, NULL, "cells in z, of all ranks"},
      {"chunk", kInt, &p.chunk, 1, 4096, NULL, "cells in x per message (SNAP's ichunk)"},
      {"angles", kInt, &p.angles, 1, 4096, NULL, "angles per octant"},
      {"groups", kInt, &p.groups, 1, 4096, NULL, "energy groups"},
      {"sweeps", kInt, &p.sweeps, 1, kSamples, NULL, "sweeps through all octants"},
      OPTION_THREADS(&p.threads),
      {"late-ms", kReal, &p.late_ms, 0, 60000, NULL,
       "the last thread of --late-rank sleeps so long before each chunk"},
      OPTION_SEED(&p.seed),
      OPTION_LATE_RANK(&p.late_rank),
      {"mode", kWord, &mode, 0, 0, "multiple|funneled|partitioned|all", "how faces travel:"},
      {"check", kWord, &check, 0, 0, "no|serial", "compare with a solution without messages:"},
  };
  options_start(&argc, &argv, "snap: SNAP's sweep, MPI + OpenMP, a partition an energy group",
                table, sizeof table / sizeof *table);
  set_up(&p);
  const int failed = run(&p, mode, check);
  MPI_Finalize();
  return failed;
}
