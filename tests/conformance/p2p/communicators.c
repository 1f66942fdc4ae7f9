// Communicators: every constructor, intercommunicators, sessions, freeing with messages in flight.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 141 };

static void post_int(const int* value, int to, MPI_Comm on, MPI_Request* request) {
  MUST(MPI_Isend(value, 1, MPI_INT, to, kTag, on, request));
}

/// Each process sends to its right neighbour in `on`, by messages of two sizes.
static void ring(MPI_Comm on, const char* what) {
  enum { kLong = 300000 };
  int rank, size;
  MUST(MPI_Comm_rank(on, &rank));
  MUST(MPI_Comm_size(on, &size));
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  unsigned char *out = memory(kLong), *in = memory(kLong);
  for (int way = 0; way < 2; ++way) {
    const int bytes = way ? kLong : 16;
    MPI_Status status;
    fill(out, kLong, 81, (uint64_t)rank);
    MUST(MPI_Sendrecv(out, bytes, MPI_BYTE, right, kTag, in, bytes, MPI_BYTE, MPI_ANY_SOURCE,
                      MPI_ANY_TAG, on, &status));
    EXPECT(status.MPI_SOURCE == left, "%s: source %d, expected %d", what, status.MPI_SOURCE, left);
    EXPECT_STATUS(&status, left, kTag, bytes);
    EXPECT_STREAM(in, (size_t)bytes, 81, (uint64_t)left);
  }
  free(out);
  free(in);
}

static void check_and_free(MPI_Comm* made, const char* what) {
  if (*made == MPI_COMM_NULL) return;
  MUST(MPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN));
  ring(*made, what);
  MUST(MPI_Comm_free(made));
}

CASE(CO1_every_constructor, .ranks = 4, .traits = kEveryLevel) {
  MPI_Comm made;
  MPI_Group all, part;
  MPI_Request request;
  MUST(MPI_Comm_dup(comm, &made));
  check_and_free(&made, "dup");
  MUST(MPI_Comm_dup_with_info(comm, MPI_INFO_NULL, &made));
  check_and_free(&made, "dup_with_info");
  MUST(MPI_Comm_idup(comm, &made, &request));
  complete(&request);
  check_and_free(&made, "idup");
  MUST(MPI_Comm_split(comm, my_rank % 2, -my_rank, &made));
  check_and_free(&made, "split");
  MUST(MPI_Comm_split(comm, my_rank == 2 ? MPI_UNDEFINED : 0, 0, &made));
  check_and_free(&made, "split without one");
  MUST(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made));
  check_and_free(&made, "split_type");
  MUST(MPI_Comm_group(comm, &all));
  MUST(MPI_Group_incl(all, 3, (const int[]){3, 1, 0}, &part));
  MUST(MPI_Comm_create(comm, part, &made));
  check_and_free(&made, "create");
  if (my_rank != 2) {
    MUST(MPI_Comm_create_group(comm, part, 5, &made));
    check_and_free(&made, "create_group");
  }
  MUST(MPI_Group_free(&part));
  MUST(MPI_Group_free(&all));
  MUST(MPI_Cart_create(comm, 2, (const int[]){2, 2}, (const int[]){1, 0}, 0, &made));
  MPI_Comm row;
  MUST(MPI_Cart_sub(made, (const int[]){0, 1}, &row));
  check_and_free(&row, "cart_sub");
  check_and_free(&made, "cart_create");
  const int right = (my_rank + 1) % 4;
  MUST(MPI_Dist_graph_create_adjacent(comm, 1, &right, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED,
                                      MPI_INFO_NULL, 0, &made));
  check_and_free(&made, "dist_graph");
}

/// A message may be sent as soon as the constructor has returned here.
CASE(CO1_messages_at_once_after_a_split, .ranks = 4) {
  for (int round = 0; round < 50; ++round) {
    MPI_Comm made;
    MUST(MPI_Comm_split(comm, (my_rank + round) % 2, my_rank, &made));
    int rank = -1, value = 10 * round + my_rank, in = -1;
    MPI_Request request;
    MUST(MPI_Comm_rank(made, &rank));
    post_int(&value, 1 - rank, made, &request);
    MUST(MPI_Recv(&in, 1, MPI_INT, 1 - rank, kTag, made, MPI_STATUS_IGNORE));
    complete(&request);
    EXPECT_DATA(in / 10 == round && (in - my_rank) % 2 == 0 && in != value, "round %d: %d", round,
                in);
    MUST(MPI_Comm_free(&made));
  }
}

/// Ranks of the status are those of the communicator.
CASE(CO2_source_is_the_rank_in_the_communicator, .ranks = 4) {
  MPI_Comm reversed;
  MUST(MPI_Comm_split(comm, 0, -my_rank, &reversed));
  const int rank = 3 - my_rank;
  int value = my_rank, in = -1;
  MPI_Request request;
  post_int(&value, (rank + 1) % 4, reversed, &request);
  MPI_Status status;
  MUST(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, kTag, reversed, &status));
  EXPECT_STATUS(&status, (rank + 3) % 4, kTag, 4);
  EXPECT_DATA(in == 3 - (rank + 3) % 4, "received %d", in);
  complete(&request);
  MUST(MPI_Comm_free(&reversed));
}

static MPI_Comm half_and_half(void) {
  MPI_Comm half, inter;
  MUST(MPI_Comm_split(comm, my_rank % 2, my_rank, &half));
  MUST(MPI_Intercomm_create(half, 0, comm, 1 - my_rank % 2, 3, &inter));
  MUST(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
  MUST(MPI_Comm_free(&half));
  return inter;
}

CASE(CO3_intercommunicators, .ranks = 4, .traits = kEveryLevel) {
  enum { kLong = 300000 };
  MPI_Comm inter = half_and_half();
  const int mine = my_rank / 2;  // in my group
  unsigned char *out = memory(kLong), *in = memory(kLong);
  for (int other = 0; other < 2; ++other) {
    for (int way = 0; way < 2; ++way) {
      const int bytes = way ? kLong : 16;
      MPI_Request request;
      MPI_Status status, seen;
      const int to = (mine + other) % 2, from = (mine + other) % 2;
      fill(out, kLong, 82, (uint64_t)my_rank);
      MUST(MPI_Isend(out, bytes, MPI_BYTE, to, kTag, inter, &request));
      MUST(MPI_Probe(MPI_ANY_SOURCE, kTag, inter, &seen));
      MUST(MPI_Recv(in, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, inter, &status));
      EXPECT_STATUS(&seen, from, kTag, bytes);
      EXPECT_STATUS(&status, from, kTag, bytes);
      EXPECT_STREAM(in, (size_t)bytes, 82, (uint64_t)(2 * from + 1 - my_rank % 2));
      complete(&request);
    }
    meet();
  }
  EXPECT_ERROR(MPI_Send(out, 1, MPI_BYTE, 2, kTag, inter), MPI_ERR_RANK);
  free(out);
  free(in);
  MUST(MPI_Comm_free(&inter));
}

CASE(CO3_merged_and_duplicated_intercommunicators, .ranks = 4) {
  MPI_Comm inter = half_and_half(), merged, copy;
  MUST(MPI_Comm_dup(inter, &copy));
  MUST(MPI_Intercomm_merge(inter, my_rank % 2, &merged));
  ring(merged, "merge");
  int value = my_rank, in = -1;
  MPI_Request request;
  post_int(&value, my_rank / 2, inter, &request);
  int also = 100 + my_rank;
  MPI_Request second;
  post_int(&also, my_rank / 2, copy, &second);
  MUST(MPI_Recv(&in, 1, MPI_INT, my_rank / 2, kTag, copy, MPI_STATUS_IGNORE));
  EXPECT_DATA(in == 100 + (my_rank ^ 1), "over the copy: %d", in);
  MUST(MPI_Recv(&in, 1, MPI_INT, my_rank / 2, kTag, inter, MPI_STATUS_IGNORE));
  EXPECT_DATA(in == (my_rank ^ 1), "over the first: %d", in);
  complete(&request);
  complete(&second);
  MUST(MPI_Comm_free(&copy));
  MUST(MPI_Comm_free(&merged));
  MUST(MPI_Comm_free(&inter));
}

/// Comm_free lets pending operations complete.
CASE(CO4_free_with_operations_in_flight, .ranks = 2) {
  enum { kBytes = 2 << 20 };
  unsigned char* data = memory(kBytes);
  for (int round = 0; round < 10; ++round) {
    const int bytes = round % 2 ? kBytes : 100;
    MPI_Comm made;
    MPI_Request request;
    MUST(MPI_Comm_dup(comm, &made));
    if (my_rank == 0) {
      fill(data, (size_t)bytes, 83, (uint64_t)round);
      MUST(MPI_Isend(data, bytes, MPI_BYTE, 1, kTag, made, &request));
    } else {
      if (round % 4 < 2) pause_s(0.002);
      MUST(MPI_Irecv(data, bytes, MPI_BYTE, 0, kTag, made, &request));
    }
    MUST(MPI_Comm_free(&made));
    EXPECT(made == MPI_COMM_NULL, "the freed communicator is not null");
    complete(&request);
    if (my_rank == 1) EXPECT_STREAM(data, (size_t)bytes, 83, (uint64_t)round);
  }
  free(data);
}

static int deleted_value;
static int delete_and_receive(MPI_Comm on, int key, void* value, void* state) {
  (void)key, (void)value, (void)state;
  return MPI_Recv(&deleted_value, 1, MPI_INT, MPI_ANY_SOURCE, kTag, on, MPI_STATUS_IGNORE);
}

/// Delete callbacks run while the communicator still works.
CASE(CO4_delete_callback_receives_a_message, .ranks = 2) {
  MPI_Comm made;
  int key = MPI_KEYVAL_INVALID, value = 31 + my_rank;
  MPI_Request request;
  MUST(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_and_receive, &key, NULL));
  MUST(MPI_Comm_dup(comm, &made));
  MUST(MPI_Comm_set_attr(made, key, NULL));
  deleted_value = -1;
  MUST(MPI_Isend(&value, 1, MPI_INT, my_peer, kTag, made, &request));
  MUST(MPI_Comm_free(&made));
  EXPECT_DATA(deleted_value == 31 + my_peer, "the callback received %d", deleted_value);
  complete(&request);
  MUST(MPI_Comm_free_keyval(&key));
}

CASE(CO4_disconnect_waits_for_messages, .ranks = 2) {
  enum { kBytes = 1 << 20 };
  MPI_Comm made;
  unsigned char* data = memory(kBytes);
  MPI_Request request;
  MUST(MPI_Comm_dup(comm, &made));
  if (my_rank == 0) {
    fill(data, kBytes, 84, 0);
    MUST(MPI_Isend(data, kBytes, MPI_BYTE, 1, kTag, made, &request));
  } else {
    MUST(MPI_Irecv(data, kBytes, MPI_BYTE, 0, kTag, made, &request));
  }
  complete(&request);
  MUST(MPI_Comm_disconnect(&made));
  EXPECT(made == MPI_COMM_NULL, "the communicator is not null");
  if (my_rank == 1) EXPECT_STREAM(data, kBytes, 84, 0);
  free(data);
}

CASE(CO5_communicator_of_a_session, .ranks = 2) {
#if CASE_HAS_SESSIONS
  MPI_Session session;
  MPI_Group group;
  MPI_Comm made;
  MUST(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
  MUST(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  MUST(MPI_Comm_create_from_group(group, "ring", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made));
  MUST(MPI_Group_free(&group));
  ring(made, "session");
  ring(comm, "world beside it");
  MPI_Comm copy;
  MUST(MPI_Comm_dup(made, &copy));
  ring(copy, "dup of it");
  MUST(MPI_Comm_free(&copy));
  MUST(MPI_Comm_free(&made));
  MUST(MPI_Session_finalize(&session));
#else
  case_skip("MPI before 4.0");
#endif
}

/// No message of a communicator that was freed reaches one made later.
CASE(CO6_a_new_communicator_is_empty, .ranks = 2) {
  for (int round = 0; round < 100; ++round) {
    MPI_Comm made;
    MUST(MPI_Comm_dup(comm, &made));
    int flag = 0;
    MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, made, &flag, MPI_STATUS_IGNORE));
    EXPECT(!flag, "round %d: a message of another communicator", round);
    meet();
    int value = round, in = -1;
    if (my_rank == 0) {
      MUST(MPI_Send(&value, 1, MPI_INT, 1, kTag, made));
    } else {
      MUST(MPI_Recv(&in, 1, MPI_INT, 0, kTag, made, MPI_STATUS_IGNORE));
      EXPECT_DATA(in == round, "round %d: %d", round, in);
    }
    MUST(MPI_Comm_free(&made));
  }
}
