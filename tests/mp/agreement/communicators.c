#define _DEFAULT_SOURCE
/* Makes communicators, each with a message: hints, intercommunicators, MPI_Comm_disconnect. At log
 * level info Larklane reports each that it carries. Four ranks.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int rank;

static void expect(int is_so, const char* what) {
  if (is_so) return;
  printf("rank %d: %s\n", rank, what);
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Each process sends its world rank and `stamp` to the process of the same place on the other side,
 * or to the next one. */
static void exchange(MPI_Comm comm, int stamp) {
  int is_inter, own, size;
  MPI_Comm_test_inter(comm, &is_inter);
  MPI_Comm_rank(comm, &own);
  if (is_inter)
    MPI_Comm_remote_size(comm, &size);
  else
    MPI_Comm_size(comm, &size);
  if (is_inter && own >= size) return;
  const int to = is_inter ? own : (own + 1) % size;
  const int from = is_inter ? own : (own + size - 1) % size;
  const int sent[2] = {own, stamp};
  int got[2] = {-1, -1};
  MPI_Status status;
  MPI_Sendrecv(sent, 2, MPI_INT, to, 3, got, 2, MPI_INT, from, 3, comm, &status);
  expect(got[0] == from && got[1] == stamp && status.MPI_SOURCE == from, "another message");
}

static void use(MPI_Comm* comm, int stamp) {
  exchange(*comm, stamp);
  MPI_Comm_free(comm);
}

static MPI_Info promising(const char* value, int keys) {
  static const char* const names[] = {"mpi_assert_no_any_source", "mpi_assert_no_any_tag",
                                      "mpi_assert_allow_overtaking"};
  MPI_Info info;
  MPI_Info_create(&info);
  for (int key = 0; key < 3; ++key)
    if (keys >> key & 1) MPI_Info_set(info, names[key], value);
  return info;
}

static void hints(void) {
  MPI_Comm comm;
  for (int keys = 0; keys < 8; ++keys) {
    MPI_Info info = promising(keys == 5 ? "false" : "true", keys);
    MPI_Request request;
    if (keys % 2 == 0) {
      MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    } else {
#if MPI_VERSION >= 4
      MPI_Comm_idup_with_info(MPI_COMM_WORLD, info, &comm, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
#else
      (void)request;
      MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
#endif
    }
    MPI_Info other = promising(keys == 5 ? "true" : "false", 7); /* a live one stays as it is */
    MPI_Comm_set_info(comm, other);
    MPI_Info_free(&other);
    MPI_Info_free(&info);
    use(&comm, 10 + keys);
  }
}

static void intercommunicators(void) {
  MPI_Comm half, inter, again, made;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  const int other = 1 - rank % 2; /* the other half's leader in the world */
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, other, 7, &inter);
  exchange(inter, 20);
  /* The odd half has made another one before. */
  MPI_Comm quarter;
  MPI_Comm_split(half, rank / 2, rank, &quarter);
  if (rank % 2 == 1) {
    MPI_Comm_dup(half, &made);
    MPI_Comm_free(&made);
    MPI_Intercomm_create(quarter, 0, half, 1 - rank / 2, 7, &made);
    use(&made, 21);
  }
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, other, 7, &again);
  exchange(again, 22);
  exchange(inter, 23);
  MPI_Comm_dup(inter, &made);
  use(&made, 24);
  MPI_Comm_split(inter, rank / 2, rank, &made); /* a pair of processes each */
  use(&made, 25);
  MPI_Intercomm_merge(inter, rank % 2, &made);
  use(&made, 26);
  /* Sides that were split from one communicator, in two intercommunicators of one process. */
  MPI_Comm single, with[3] = {MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &single);
  static const int pairs[3][2] = {{1, 3}, {0, 1}, {0, 2}};
  for (int pair = 0; pair < 3; ++pair) {
    for (int end = 0; end < 2; ++end)
      if (rank == pairs[pair][end])
        MPI_Intercomm_create(single, 0, MPI_COMM_WORLD, pairs[pair][1 - end], 11, &with[pair]);
    MPI_Barrier(MPI_COMM_WORLD); /* MPICH 5.0.2 confuses two at a time with one tag */
  }
  for (int pair = 0; pair < 3; ++pair)
    if (with[pair] != MPI_COMM_NULL) exchange(with[pair], 30 + pair);
  for (int pair = 0; pair < 3; ++pair)
    if (with[pair] != MPI_COMM_NULL) MPI_Comm_free(&with[pair]);
  MPI_Comm_free(&single);
  /* Sides of different sizes. */
  MPI_Comm side;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &side);
  MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 9, &made);
  use(&made, 27);
  MPI_Comm_free(&side);
  MPI_Comm_free(&quarter);
  MPI_Comm_free(&again);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

/* A send is over when MPI_Comm_disconnect returns, however late its receive comes. */
static void disconnect(void) {
  enum { kBytes = 1 << 20 };
  char* const bytes = calloc(kBytes, 1);
  MPI_Comm comm;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  if (rank == 0) MPI_Isend(bytes, kBytes, MPI_CHAR, 1, 5, comm, &request);
  if (rank == 1) {
    usleep(300000);
    MPI_Irecv(bytes, kBytes, MPI_CHAR, 0, 5, comm, &request);
  }
  MPI_Comm_disconnect(&comm);
  int is_done = 0;
  MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
  if (rank == 0) expect(is_done, "its send is not over");
  if (!is_done) MPI_Wait(&request, MPI_STATUS_IGNORE);
  free(bytes);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  hints();
  intercommunicators();
  disconnect();
  MPI_Finalize();
  return 0;
}
