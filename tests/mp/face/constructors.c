// Every communicator constructor: partitioned pairs on its result match those of the same
// communicator in the other processes and of no other, also when processes made different numbers
// of communicators before, handles are reused and idups complete late. Run with 4
// ranks under `larklane run`, with unreachable=refuse: a pair that were left to the MPI would be an
// error.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int world_rank;
static int failures;

// A ring within a communicator: each member sends its world rank and the stamp to the next, all on
// tag 3.
static void exchange(MPI_Comm comm, const char* what, int stamp) {
  if (comm == MPI_COMM_NULL) return;
  int inter, rank, size;
  MPI_Comm_test_inter(comm, &inter);
  MPI_Comm_rank(comm, &rank);
  inter ? MPI_Comm_remote_size(comm, &size) : MPI_Comm_size(comm, &size);
  // Between two groups: members of equal rank are partners.
  if (inter && rank >= size) return;
  const int to = inter ? rank : (rank + 1) % size;
  const int from = inter ? rank : (rank + size - 1) % size;
  int out[2][2], in[2][2] = {{-1, -1}, {-1, -1}};
  MPI_Request requests[2];
  MPI_Psend_init(out, 2, 2, MPI_INT, to, 3, comm, MPI_INFO_NULL, &requests[0]);
  MPI_Precv_init(in, 2, 2, MPI_INT, from, 3, comm, MPI_INFO_NULL, &requests[1]);
  for (int round = 0; round < 2; ++round) {
    MPI_Startall(2, requests);
    for (int p = 0; p < 2; ++p) {
      out[p][0] = rank + 100 * round;
      out[p][1] = stamp;
      MPI_Pready(p, requests[0]);
    }
    MPI_Status statuses[2];
    MPI_Waitall(2, requests, statuses);
    for (int p = 0; p < 2; ++p) {
      if (in[p][0] != from + 100 * round || in[p][1] != stamp || statuses[1].MPI_SOURCE != from) {
        printf("rank %d: %s, round %d: got %d of stamp %d, expected %d of stamp %d\n", world_rank,
               what, round, in[p][0], in[p][1], from + 100 * round, stamp);
        ++failures;
      }
    }
  }
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
}

static void use(MPI_Comm* comm, const char* what, int stamp) {
  exchange(*comm, what, stamp);
  if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
}

static void plain_constructors(MPI_Comm parent, int stamp) {
  MPI_Comm made;
  MPI_Comm_dup(parent, &made);
  use(&made, "dup", stamp + 1);
  MPI_Comm_dup_with_info(parent, MPI_INFO_NULL, &made);
  use(&made, "dup_with_info", stamp + 2);
  MPI_Comm_split(parent, world_rank % 2, -world_rank, &made);
  use(&made, "split", stamp + 3);
  MPI_Comm_split(parent, world_rank == 0 ? MPI_UNDEFINED : 1, 0, &made);
  use(&made, "split without rank 0", stamp + 4);
  MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made);
  use(&made, "split_type", stamp + 5);

  MPI_Group all, some;
  MPI_Comm_group(parent, &all);
  const int members[3] = {3, 1, 2};
  MPI_Group_incl(all, 3, members, &some);
  MPI_Comm_create(parent, some, &made);
  use(&made, "create", stamp + 6);
  if (world_rank != 0) {
    for (int i = 0; i < 3; ++i) {
      MPI_Comm_create_group(parent, some, 9, &made);
      use(&made, "create_group", stamp + 7 + i);
    }
  }
  MPI_Group_free(&some);
  MPI_Group_free(&all);
}

static void topologies(MPI_Comm parent, int stamp) {
  MPI_Comm cart, row, made;
  const int dims[2] = {2, 2}, periods[2] = {1, 0}, remain[2] = {0, 1};
  MPI_Cart_create(parent, 2, dims, periods, 1, &cart);
  exchange(cart, "cart", stamp + 1);
  MPI_Cart_sub(cart, remain, &row);
  use(&row, "cart_sub", stamp + 2);
  MPI_Comm_free(&cart);
  const int index[4] = {1, 2, 3, 4}, edges[4] = {1, 0, 3, 2};
  MPI_Graph_create(parent, 4, index, edges, 1, &made);
  use(&made, "graph", stamp + 3);
  const int partner = world_rank ^ 1, one = 1;
  MPI_Dist_graph_create_adjacent(parent, 1, &partner, MPI_UNWEIGHTED, 1, &partner, MPI_UNWEIGHTED,
                                 MPI_INFO_NULL, 0, &made);
  use(&made, "dist_graph_create_adjacent", stamp + 4);
  MPI_Dist_graph_create(parent, 1, &world_rank, &one, &partner, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                        &made);
  use(&made, "dist_graph_create", stamp + 5);
}

static void intercommunicators(int stamp) {
  MPI_Comm half, inter, merged, copy;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank / 2, world_rank, &half);
  // One side has made more communicators before: the two sides' ordinals differ.
  for (int i = 0; i < (world_rank / 2) * 3; ++i) {
    MPI_Comm_dup(half, &copy);
    use(&copy, "dup of a half", stamp + 1);
  }
  for (int i = 0; i < 2; ++i) {
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, world_rank / 2 == 0 ? 2 : 0, 5, &inter);
    exchange(inter, "intercomm_create", stamp + 2 + i);
    MPI_Comm_dup(inter, &copy);
    use(&copy, "dup of an intercommunicator", stamp + 4 + i);
    MPI_Intercomm_merge(inter, world_rank / 2, &merged);
    MPI_Comm_free(&inter);
    use(&merged, "intercomm_merge", stamp + 6 + i);
  }
  MPI_Comm_free(&half);
}

// Nonblocking duplicates, used in the other order than they were made, one of them after its parent
// is gone.
static void idups(int stamp) {
  MPI_Comm parent, made[3];
  MPI_Request requests[3];
  MPI_Comm_dup(MPI_COMM_WORLD, &parent);
  for (int i = 0; i < 3; ++i) MPI_Comm_idup(parent, &made[i], &requests[i]);
  if (world_rank % 2 == 0) {
    for (int i = 0; i < 3; ++i) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  } else {
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
  }
  MPI_Comm_free(&parent);
  for (int i = 2; i >= 0; --i) use(&made[i], "idup", stamp + i);
}

// Handles come back with other communicators behind them.
static void reuse(int stamp) {
  for (int i = 0; i < 50; ++i) {
    MPI_Comm first, second;
    MPI_Comm_dup(MPI_COMM_WORLD, &first);
    if (i % 2 == 0) MPI_Comm_free(&first);
    MPI_Comm_split(MPI_COMM_WORLD, 0, world_rank % 3, &second);
    use(&second, "a reused handle", stamp + i);
    if (i % 2 != 0) use(&first, "an older one", stamp - i - 1);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  exchange(MPI_COMM_WORLD, "world", 1);
  exchange(MPI_COMM_SELF, "self", 2);
  plain_constructors(MPI_COMM_WORLD, 100);
  MPI_Comm twisted;
  MPI_Comm_split(MPI_COMM_WORLD, 0, 4 - world_rank, &twisted);
  exchange(twisted, "split in reverse", 200);
  MPI_Comm_free(&twisted);
  topologies(MPI_COMM_WORLD, 300);
  intercommunicators(400);
  idups(500);
  reuse(700);
  int all = 0;
  MPI_Reduce(&failures, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (world_rank == 0) printf("constructors: %s\n", all == 0 ? "ok" : "FAILED");
  MPI_Finalize();
  return all == 0 && failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
