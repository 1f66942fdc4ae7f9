// Communicators of every making (X1), and processes that have no part in it (X2).
#include <stdio.h>
#include <string.h>

#include "case.h"

enum { kTag = 47, kParts = 4 };

/// One value each way on `on`, between `rank` and `other`.
static void exchange(MPI_Comm on, int rank, int other, int value) {
  int out[kParts], in[kParts] = {0};
  for (int i = 0; i < kParts; ++i) out[i] = value * 100 + rank * 10 + i;
  MPI_Request request[2] = {psend(out, kParts, 1, MPI_INT, other, kTag, on),
                            precv(in, kParts, 1, MPI_INT, other, kTag, on)};
  for (int round = 0; round < 2; ++round) {
    memset(in, 0, sizeof(in));
    MUST(MPI_Startall(2, request));
    ready_all(request[0], kParts);
    MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
    for (int i = 0; i < kParts; ++i) {
      const int expected = value * 100 + other * 10 + i;
      EXPECT_DATA(in[i] == expected, "communicator %d, partition %d: expected %d, found %d", value,
                  i, expected, in[i]);
    }
  }
  drop(&request[0]);
  drop(&request[1]);
}

/// Pairs with equal tags live on all communicators at once; each must get its own data.
static void all_at_once(const MPI_Comm* comms, int count) {
  enum { kMax = 16 };
  int out[kMax][kParts], in[kMax][kParts] = {{0}};
  MPI_Request request[2 * kMax];
  for (int k = 0; k < count; ++k) {
    const int c = my_rank == 0 ? k : count - 1 - k;  // initialized in different orders
    int rank;
    MUST(MPI_Comm_rank(comms[c], &rank));
    for (int i = 0; i < kParts; ++i) out[c][i] = c * 100 + rank * 10 + i;
    request[2 * c] = psend(out[c], kParts, 1, MPI_INT, 1 - rank, kTag, comms[c]);
    request[2 * c + 1] = precv(in[c], kParts, 1, MPI_INT, 1 - rank, kTag, comms[c]);
  }
  MUST(MPI_Startall(2 * count, request));
  for (int c = 0; c < count; ++c) ready_all(request[2 * c], kParts);
  MUST(MPI_Waitall(2 * count, request, MPI_STATUSES_IGNORE));
  for (int c = 0; c < count; ++c) {
    int rank;
    MUST(MPI_Comm_rank(comms[c], &rank));
    for (int i = 0; i < kParts; ++i) {
      const int expected = c * 100 + (1 - rank) * 10 + i;
      EXPECT_DATA(in[c][i] == expected, "communicator %d: expected %d, found %d", c, expected,
                  in[c][i]);
    }
    drop(&request[2 * c]);
    drop(&request[2 * c + 1]);
  }
}

CASE(X1_contexts_of_every_constructor_are_separate, .ranks = 2) {
  MPI_Comm comms[16], merged_from;
  int n = 0, two = 2, neighbour = my_peer, index[2] = {1, 2}, edges[2] = {1, 0}, periodic = 1,
      weight = 1;
  MPI_Group group;
  MPI_Request idup;
  MUST(MPI_Comm_group(comm, &group));
  comms[n++] = comm;
  comms[n++] = MPI_COMM_WORLD;
  MUST(MPI_Comm_dup(comm, &comms[n++]));
  MUST(MPI_Comm_dup(comm, &comms[n++]));
  MUST(MPI_Comm_dup_with_info(comm, MPI_INFO_NULL, &comms[n++]));
  MUST(MPI_Comm_idup(comm, &comms[n], &idup));
  MUST(MPI_Wait(&idup, MPI_STATUS_IGNORE));
  ++n;
  MUST(MPI_Comm_split(comm, 3, -my_rank, &comms[n++]));  // ranks reversed
  MUST(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comms[n++]));
  MUST(MPI_Comm_create(comm, group, &comms[n++]));
  MUST(MPI_Comm_create_group(comm, group, 5, &comms[n++]));
  MUST(MPI_Comm_create_group(comm, group, 5, &comms[n++]));
  MUST(MPI_Cart_create(comm, 1, &two, &periodic, 0, &comms[n++]));
  MUST(MPI_Graph_create(comm, 2, index, edges, 0, &comms[n++]));
  MUST(MPI_Dist_graph_create_adjacent(comm, 1, &neighbour, &weight, 1, &neighbour, &weight,
                                      MPI_INFO_NULL, 0, &comms[n++]));
  MUST(MPI_Intercomm_create(MPI_COMM_SELF, 0, comm, my_peer, 9, &merged_from));
  MUST(MPI_Intercomm_merge(merged_from, my_rank, &comms[n++]));
  MUST(MPI_Comm_dup(comms[3], &comms[n++]));  // a duplicate of a duplicate
  for (int c = 0; c < n; ++c) MPI_Comm_set_errhandler(comms[c], MPI_ERRORS_RETURN);
  all_at_once(comms, n);
  for (int c = 2; c < n; ++c) MUST(MPI_Comm_free(&comms[c]));
  MUST(MPI_Comm_free(&merged_from));
  MUST(MPI_Group_free(&group));
}

CASE(X1_world, .ranks = 2) { exchange(MPI_COMM_WORLD, my_rank, my_peer, 1); }

/// A communicator that the MPI refuses to free stays unchanged, even if one process alone got the
/// refusal.
CASE(X1_refused_free, .ranks = 2) {
  MPI_Comm comms[5] = {comm, MPI_COMM_WORLD, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
  for (int c = 2; c < 5; ++c) {
    MPI_Comm copy = MPI_COMM_WORLD;
    if (c < 4 || my_rank == 1) EXPECT_ERROR(MPI_Comm_free(&copy), MPI_ERR_COMM);
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]));
  }
  step("exchanging data after a free that was refused");
  all_at_once(comms, 4);
  all_at_once(comms, 5);
  for (int c = 2; c < 5; ++c) MUST(MPI_Comm_free(&comms[c]));
}

CASE(X1_idup_completed_in_both_orders, .ranks = 2) {
  MPI_Comm comms[4] = {comm, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
  MPI_Request request[2];
  MUST(MPI_Comm_idup(comm, &comms[1], &request[0]));
  MUST(MPI_Comm_idup(comm, &comms[2], &request[1]));
  const int first = my_rank == 0 ? 0 : 1;  // the processes wait in opposite orders
  int flag = 0;
  while (!flag) MUST(MPI_Test(&request[first], &flag, MPI_STATUS_IGNORE));
  MUST(MPI_Wait(&request[1 - first], MPI_STATUS_IGNORE));
  MUST(MPI_Comm_dup(comm, &comms[3]));
  all_at_once(comms, 4);
  for (int c = 1; c < 4; ++c) MUST(MPI_Comm_free(&comms[c]));
}

CASE(X1_idup_with_other_constructors_between, .ranks = 2) {
  MPI_Comm comms[4] = {comm, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
  MPI_Request request;
  MUST(MPI_Comm_idup(comm, &comms[1], &request));
  MUST(MPI_Comm_dup(comm, &comms[2]));
  MUST(MPI_Comm_split(comm, 0, my_rank, &comms[3]));
  MUST(MPI_Waitall(1, &request, MPI_STATUSES_IGNORE));
  all_at_once(comms, 4);
  for (int c = 1; c < 4; ++c) MUST(MPI_Comm_free(&comms[c]));
}

CASE(X1_many_short_lived_communicators, .ranks = 2) {
  for (int i = 0; i < 100; ++i) {
    MPI_Comm own;
    MUST(MPI_Comm_dup(comm, &own));
    exchange(own, my_rank, my_peer, i);
    MUST(MPI_Comm_free(&own));
  }
}

CASE(X1_self, .ranks = 2) {
  enum { kRounds = 5 };
  MPI_Comm own;
  MUST(MPI_Comm_dup(MPI_COMM_SELF, &own));
  MPI_Comm comms[2] = {MPI_COMM_SELF, own};
  for (int c = 0; c < 2; ++c) {
    int out[6], in[6];
    MPI_Request request[2] = {psend(out, 6, 1, MPI_INT, 0, kTag, comms[c]),
                              precv(in, 2, 3, MPI_INT, 0, kTag, comms[c])};
    for (int round = 1; round <= kRounds; ++round) {
      memset(in, 0, sizeof(in));
      MUST(MPI_Startall(2, request));
      for (int i = 0; i < 6; ++i) {
        out[i] = 10 * round + i;
        ready(request[0], i);
        EXPECT(i >= 3 || !arrived(request[1], 1), "partition 1 arrived after %d of 6", i + 1);
      }
      EXPECT(arrives(request[1], 0, 1) && arrives(request[1], 1, 1), "no arrival");
      MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
      for (int i = 0; i < 6; ++i) {
        EXPECT_DATA(in[i] == 10 * round + i, "round %d, %d: found %d", round, i, in[i]);
      }
    }
    drop(&request[0]);
    drop(&request[1]);
  }
  MUST(MPI_Comm_free(&own));
}

CASE(X1_own_rank_in_a_larger_communicator, .ranks = 2) {
  int out[kParts] = {0}, in[kParts] = {0};
  MPI_Request request[2] = {precv(in, kParts, 1, MPI_INT, my_rank, kTag, comm),
                            psend(out, kParts, 1, MPI_INT, my_rank, kTag, comm)};
  for (int round = 1; round <= 3; ++round) {
    start(&request[1]);
    for (int i = 0; i < kParts; ++i) out[i] = round * 100 + my_rank;
    ready_all(request[1], kParts);
    start(&request[0]);
    MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
    EXPECT_DATA(in[kParts - 1] == round * 100 + my_rank, "found %d", in[kParts - 1]);
  }
  drop(&request[0]);
  drop(&request[1]);
}

CASE(X1_intercommunicator, .ranks = 4) {
  MPI_Comm half, inter, again;
  const int side = my_rank / 2;
  MUST(MPI_Comm_split(comm, side, my_rank, &half));
  MUST(MPI_Intercomm_create(half, 0, comm, side == 0 ? 2 : 0, 3, &inter));
  MUST(MPI_Comm_dup(inter, &again));
  MPI_Comm comms[2] = {inter, again};
  const int partner = 1 - my_rank % 2;  // rank in the remote group
  int out[2][kParts], in[2][kParts] = {{0}};
  MPI_Request request[4];
  for (int c = 0; c < 2; ++c) {
    MPI_Comm_set_errhandler(comms[c], MPI_ERRORS_RETURN);
    for (int i = 0; i < kParts; ++i) out[c][i] = 1000 * c + 10 * my_rank + i;
    request[2 * c] = psend(out[c], kParts, 1, MPI_INT, partner, kTag, comms[c]);
    request[2 * c + 1] = precv(in[c], kParts, 1, MPI_INT, partner, kTag, comms[c]);
  }
  MPI_Status status[4];
  MUST(MPI_Startall(4, request));
  for (int c = 0; c < 2; ++c) ready_all(request[2 * c], kParts);
  MUST(MPI_Waitall(4, request, status));
  const int partner_world = (1 - side) * 2 + partner;
  for (int c = 0; c < 2; ++c) {
    EXPECT_DATA(in[c][3] == 1000 * c + 10 * partner_world + 3, "communicator %d: found %d", c,
                in[c][3]);
    EXPECT(status[2 * c + 1].MPI_SOURCE == partner, "source %d", status[2 * c + 1].MPI_SOURCE);
    drop(&request[2 * c]);
    drop(&request[2 * c + 1]);
  }
  MUST(MPI_Comm_free(&again));
  MUST(MPI_Comm_free(&inter));
  MUST(MPI_Comm_free(&half));
}

CASE(X1_subsets_made_in_different_numbers, .ranks = 4) {
  // Ranks 0 and 1 make three communicators of their own that 2 and 3 know nothing of, then all make
  // one together.
  MPI_Comm own[3], all;
  MPI_Group group, pair;
  MUST(MPI_Comm_group(comm, &group));
  MUST(MPI_Group_incl(group, 2, (const int[]){0, 1}, &pair));
  if (my_rank < 2) {
    for (int i = 0; i < 3; ++i) MUST(MPI_Comm_create_group(comm, pair, i % 2, &own[i]));
  }
  MUST(MPI_Comm_dup(comm, &all));
  exchange(all, my_rank, my_rank ^ 1, 1);
  exchange(all, my_rank, 3 - my_rank, 2);
  if (my_rank < 2) {
    all_at_once(own, 3);
    for (int i = 0; i < 3; ++i) MUST(MPI_Comm_free(&own[i]));
  }
  MUST(MPI_Comm_free(&all));
  MUST(MPI_Group_free(&pair));
  MUST(MPI_Group_free(&group));
}

CASE(X1_split_into_pairs, .ranks = 4) {
  for (int way = 1; way < 4; ++way) {
    const int partner = my_rank ^ way;
    const int low = my_rank < partner ? my_rank : partner;
    MPI_Comm pair;
    MUST(MPI_Comm_split(comm, low, my_rank, &pair));
    const int rank = my_rank < partner ? 0 : 1;
    exchange(pair, rank, 1 - rank, 10 + low);
    MUST(MPI_Comm_free(&pair));
  }
}

CASE(X1_session_beside_the_world, .ranks = 2) {
#if CASE_HAS_SESSIONS
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comms[4] = {comm, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_WORLD};
  MUST(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
  MUST(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  for (int i = 1; i < 3; ++i) {
    MUST(MPI_Comm_create_from_group(group, i == 1 ? "one" : "two", MPI_INFO_NULL, MPI_ERRORS_RETURN,
                                    &comms[i]));
  }
  all_at_once(comms, 4);
  for (int i = 1; i < 3; ++i) MUST(MPI_Comm_free(&comms[i]));
  MUST(MPI_Group_free(&group));
  MUST(MPI_Session_finalize(&session));
#else
  case_skip("no sessions in this MPI");
#endif
}

CASE(X2_a_rank_that_never_uses_it, .ranks = 3) {
  if (my_rank == 2) {  // outside MPI while the others work
    await(0, 2, 10);
  } else {
    step("setting up a pair while the third process takes no part");
    exchange(comm, my_rank, 1 - my_rank, 3);
    post(my_rank, 1);
    if (my_rank == 0) {
      await(1, 1, 10);
      post(0, 2);
    }
  }
}

CASE(X3_no_synchronous_guarantee, .ranks = 2) {
  // A send may or may not complete before the receiver starts; both sides must get on either way.
  int value = 5, got = 0;
  MPI_Request request = my_rank == 0 ? psend(&value, 1, 1, MPI_INT, 1, kTag, comm)
                                     : precv(&got, 1, 1, MPI_INT, 0, kTag, comm);
  if (my_rank == 0) {
    start(&request);
    ready(request, 0);
    const double end = now_s() + 0.05;
    int flag = 0;
    while (!flag && now_s() < end) flag = tested(&request);
    post(0, 1);
  } else {
    await(0, 1, 5);
    start(&request);
  }
  complete(&request);
  EXPECT_DATA(my_rank == 0 || got == 5, "found %d", got);
  drop(&request);
}

static int copies;
static int copy_attribute(MPI_Comm from, int key, void* state, void* in, void* out, int* flag) {
  (void)from;
  (void)key;
  (void)state;
  (void)in;
  (void)out;
  ++copies;
  *flag = 0;
  return MPI_SUCCESS;
}

CASE(X1_self_attribute_is_not_copied, .ranks = 2) {
  int key, value = 1;
  MUST(MPI_Comm_create_keyval(copy_attribute, MPI_COMM_NULL_DELETE_FN, &key, NULL));
  MUST(MPI_Comm_set_attr(MPI_COMM_SELF, key, &value));
  copies = 0;
  for (int i = 0; i < 3; ++i) exchange(comm, my_rank, my_peer, i);
  EXPECT(copies == 0, "the copy callback of MPI_COMM_SELF ran %d times", copies);
  MUST(MPI_Comm_delete_attr(MPI_COMM_SELF, key));
  MUST(MPI_Comm_free_keyval(&key));
}

/// Runs first thing in MPI_Finalize: MPI still works there.
static int last_words(MPI_Comm self, int key, void* value, void* state) {
  (void)key;
  (void)value;
  (void)state;
  int out = 6, in = 0;
  MPI_Request request[2];
  MPI_Precv_init(&in, 1, 1, MPI_INT, 0, kTag, self, MPI_INFO_NULL, &request[0]);
  MPI_Psend_init(&out, 1, 1, MPI_INT, 0, kTag, self, MPI_INFO_NULL, &request[1]);
  MPI_Startall(2, request);
  MPI_Pready(0, request[1]);
  MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
  if (in != 6)
    printf("not ok C10_self_attribute_in_finalize: rank %d: wrong data: %d\n", my_rank, in);
  fflush(stdout);
  MPI_Request_free(&request[0]);
  MPI_Request_free(&request[1]);
  return MPI_SUCCESS;
}

CASE(C10_self_attribute_in_finalize, .ranks = 2) {
  int key;
  MUST(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last_words, &key, NULL));
  MUST(MPI_Comm_set_attr(MPI_COMM_SELF, key, &copies));
  exchange(comm, my_rank, my_peer, 1);
}
