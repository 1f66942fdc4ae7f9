// Spawned processes and processes that connect (X1): partitioned pairs across worlds.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "case.h"
#include "harness.h"

enum { kTag = 73, kParts = 4, kRounds = 3, kConnectTag = 74 };

/// The exchange of parent `index` and the child; both sides call it. @return the first difference,
/// or 0
static int exchange_with(MPI_Comm on, int other, int mine, int theirs) {
  int out[kParts], in[kParts], wrong = 0;
  MPI_Request request[2];
  MPI_Psend_init(out, kParts, 1, MPI_INT, other, kTag, on, MPI_INFO_NULL, &request[0]);
  MPI_Precv_init(in, kParts / 2, 2, MPI_INT, other, kTag, on, MPI_INFO_NULL, &request[1]);
  for (int round = 1; round <= kRounds; ++round) {
    for (int i = 0; i < kParts; ++i) out[i] = 1000 * mine + 10 * round + i;
    memset(in, 0, sizeof(in));
    MPI_Startall(2, request);
    MPI_Pready_range(0, kParts - 1, request[0]);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kParts; ++i) {
      if (wrong == 0) wrong = in[i] - (1000 * theirs + 10 * round + i);
    }
  }
  MPI_Request_free(&request[0]);
  MPI_Request_free(&request[1]);
  return wrong;
}

/// Pairs on every kind of communicator between this world and another of the same size: the
/// intercommunicator, the merged one, its duplicate, halves, and a group of one process of each.
/// @return whether a value was wrong, in any process of both
static int exchange_everywhere(MPI_Comm inter, int high) {
  MPI_Comm merged, made;
  MPI_Group all, pair;
  int index, size, rank, wrong = 0, any = 0;
  MPI_Comm_rank(inter, &index);
  MPI_Comm_remote_size(inter, &size);
  wrong |= exchange_with(inter, index, 10 * high + index, 10 * !high + index);
  MPI_Intercomm_merge(inter, high, &merged);
  MPI_Comm_rank(merged, &rank);
  const int across = (rank + size) % (2 * size), last = 2 * size - 1;
  wrong |= exchange_with(merged, across, rank, across);
  wrong |= exchange_with(merged, last - rank, rank, last - rank);
  MPI_Comm_dup(merged, &made);
  wrong |= exchange_with(made, across, rank, across);
  MPI_Comm_free(&made);
  MPI_Comm_split(merged, index, high, &made);
  wrong |= exchange_with(made, !high, rank, across);
  MPI_Comm_free(&made);
  MPI_Comm_group(merged, &all);
  MPI_Group_incl(all, 2, (const int[]){0, last}, &pair);
  if (rank == 0 || rank == last) {
    MPI_Comm_create_group(merged, pair, kTag, &made);
    wrong |= exchange_with(made, rank == 0, rank, last - rank);
    MPI_Comm_free(&made);
  }
  MPI_Group_free(&pair);
  MPI_Group_free(&all);
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_BOR, merged);
  MPI_Comm_free(&merged);
  return any;
}

/// Between the processes of one world, while it is connected with others.
static int exchange_at_home(MPI_Comm home) {
  int rank, size;
  MPI_Comm_rank(home, &rank);
  MPI_Comm_size(home, &size);
  return exchange_with(home, size - 1 - rank, rank, size - 1 - rank);
}

/// With parent 0 over the intercommunicator, with parent 1 over the merged one.
static void child_alone(MPI_Comm parent) {
  MPI_Comm merged;
  int wrong = exchange_with(parent, 0, 9, 1);
  MPI_Intercomm_merge(parent, 1, &merged);
  wrong |= exchange_with(merged, 1, 9, 2);
  MPI_Reduce(&wrong, NULL, 1, MPI_INT, MPI_BOR, 0, merged);
  MPI_Comm_free(&merged);
}

static void child_of_two(MPI_Comm parent) {
  const int wrong = exchange_at_home(MPI_COMM_WORLD);
  MPI_Send(&wrong, 1, MPI_INT, 0, kTag, parent);
  exchange_everywhere(parent, 1);
}

/// No partitioned call.
static void child_of_plain_mpi(MPI_Comm parent) {
  MPI_Comm merged;
  int value = 0;
  MPI_Recv(&value, 1, MPI_INT, 0, kTag, parent, MPI_STATUS_IGNORE);
  ++value;
  MPI_Send(&value, 1, MPI_INT, 0, kTag, parent);
  MPI_Intercomm_merge(parent, 1, &merged);
  MPI_Comm_free(&merged);
}

/// Parents and child spawn one more, together.
static void child_that_spawns(MPI_Comm parent) {
  MPI_Comm merged, grandchild;
  MPI_Intercomm_merge(parent, 1, &merged);
  MPI_Comm_spawn(NULL, NULL, 1, MPI_INFO_NULL, 0, merged, &grandchild, MPI_ERRCODES_IGNORE);
  const int wrong = exchange_with(grandchild, 0, 2, 5);
  MPI_Send(&wrong, 1, MPI_INT, 0, kTag, parent);
  MPI_Comm_disconnect(&grandchild);
  MPI_Comm_free(&merged);
}

/// With each of two parents and their other child, all over the intercommunicator.
static void grandchild(MPI_Comm parent) {
  int size, wrong = 0;
  MPI_Comm_remote_size(parent, &size);
  for (int i = 0; i < size; ++i) wrong |= exchange_with(parent, i, 5, i);
  MPI_Send(&wrong, 1, MPI_INT, 0, kTag, parent);
}

/// Two worlds that have never met: the parents hand the port's name on.
static void child_that_accepts(MPI_Comm parent) {
  char port[MPI_MAX_PORT_NAME] = "";
  MPI_Comm other;
  int rank, wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (rank == 0) {
    if (MPI_Open_port(MPI_INFO_NULL, port) != MPI_SUCCESS) port[0] = 0;
    MPI_Send(port, sizeof(port), MPI_CHAR, 0, kConnectTag, parent);
  }
  MPI_Bcast(port, sizeof(port), MPI_CHAR, 0, MPI_COMM_WORLD);
  if (port[0] == 0) return;
  MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
  wrong = exchange_everywhere(other, 0);
  MPI_Comm_disconnect(&other);
  if (rank != 0) return;
  MPI_Close_port(port);
  MPI_Send(&wrong, 1, MPI_INT, 0, kConnectTag, parent);
}

static void child_that_connects(MPI_Comm parent) {
  char port[MPI_MAX_PORT_NAME] = "";
  MPI_Comm other;
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    MPI_Recv(port, sizeof(port), MPI_CHAR, 0, kConnectTag, parent, MPI_STATUS_IGNORE);
  }
  MPI_Bcast(port, sizeof(port), MPI_CHAR, 0, MPI_COMM_WORLD);
  if (port[0] == 0) return;
  MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
  exchange_everywhere(other, 1);
  MPI_Comm_disconnect(&other);
}

int child_main(const char* what) {
  static const struct {
    const char* what;
    void (*run)(MPI_Comm parent);
  } kChildren[] = {{"alone", child_alone},           {"of two", child_of_two},
                   {"plain", child_of_plain_mpi},    {"spawns", child_that_spawns},
                   {"grandchild", grandchild},       {"accepts", child_that_accepts},
                   {"connects", child_that_connects}};
  MPI_Comm parent;
  int provided;
  alarm(30);  // independent of the parents' end
  MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &provided);
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL) return 2;
  for (size_t i = 0; i < sizeof(kChildren) / sizeof(*kChildren); ++i) {
    if (strcmp(kChildren[i].what, what) == 0) kChildren[i].run(parent);
  }
  MPI_Comm_disconnect(&parent);
  MPI_Finalize();
  return 0;
}

static MPI_Info spawn_info(const char* larklane) {
  MPI_Info info;
  MUST(MPI_Info_create(&info));
  MUST(MPI_Info_set(info, "map_by", ":OVERSUBSCRIBE"));
  if (larklane[0] != '\0') MUST(MPI_Info_set(info, "larklane", larklane));
  return info;
}

static char* own_path(void) {
  static char path[4096];
  REQUIRE(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0, "readlink failed");
  return path;
}

/// Spawns `children` processes of this program, which run the part named by `what`. A case is
/// skipped only where the MPI spawns nothing natively, either.
static bool spawn(MPI_Comm by, char* what, int children, const char* larklane, MPI_Comm* child) {
  char* arguments[] = {"--child", what, NULL};
  MPI_Info info = spawn_info(larklane);
  step("spawning");
  int code =
      MPI_Comm_spawn(own_path(), arguments, children, info, 0, by, child, MPI_ERRCODES_IGNORE);
  MUST(MPI_Info_free(&info));
  if (code == MPI_SUCCESS) return true;
  info = spawn_info("off");
  code = MPI_Comm_spawn(own_path(), arguments, children, info, 0, by, child, MPI_ERRCODES_IGNORE);
  MUST(MPI_Info_free(&info));
  REQUIRE(code != MPI_SUCCESS, "MPI_Comm_spawn fails only under Larklane");
  case_skip("MPI_Comm_spawn fails here");
  return false;
}

CASE(X1_spawned_child, .ranks = 2, .deadline_s = 10) {
  MPI_Comm child, merged;
  int wrong = 0, any = 0;
  if (!spawn(comm, "alone", 1, "", &child)) return;
  step("exchanging data with a spawned child");
  if (my_rank == 0) wrong = exchange_with(child, 0, 1, 9);
  MUST(MPI_Intercomm_merge(child, 0, &merged));
  if (my_rank == 1) wrong |= exchange_with(merged, 2, 2, 9);
  MUST(MPI_Reduce(&wrong, &any, 1, MPI_INT, MPI_BOR, 0, merged));
  EXPECT_DATA(wrong == 0 && any == 0, "values differ by %d here, by %d somewhere", wrong, any);
  MUST(MPI_Comm_free(&merged));
  MUST(MPI_Comm_disconnect(&child));
}

CASE(X1_spawned_children_of_two_commands, .ranks = 2, .deadline_s = 15) {
  char *what[] = {"--child", "of two", NULL}, *commands[] = {own_path(), own_path()};
  char** arguments[] = {what, what};
  const int ones[] = {1, 1};
  MPI_Info info = spawn_info(""), infos[] = {info, MPI_INFO_NULL};  // PRRTE takes map_by once
  MPI_Comm children;
  step("spawning two commands");
  const int code = MPI_Comm_spawn_multiple(2, commands, arguments, ones, infos, 0, comm, &children,
                                           MPI_ERRCODES_IGNORE);
  MUST(MPI_Info_free(&info));
  if (code != MPI_SUCCESS) {
    if (!spawn(comm, "of two", 2, "", &children)) return;
    EXPECT(false, "MPI_Comm_spawn_multiple fails where MPI_Comm_spawn does not");
  }
  for (int i = 0; i < 2 && my_rank == 0; ++i) {
    int wrong = 1;
    step("waiting for the children's own pairs");
    MUST(MPI_Recv(&wrong, 1, MPI_INT, i, kTag, children, MPI_STATUS_IGNORE));
    EXPECT_DATA(wrong == 0, "values in the children's world differ by %d", wrong);
  }
  step("exchanging data with spawned children");
  EXPECT_DATA(exchange_everywhere(children, 0) == 0, "a value is wrong");
  MUST(MPI_Comm_disconnect(&children));
}

CASE(X1_spawned_child_of_plain_MPI, .ranks = 2, .deadline_s = 10) {
  MPI_Comm child, merged;
  int value = 41;
  if (!spawn(comm, "plain", 1, "off", &child)) return;
  if (my_rank == 0) {
    step("exchanging messages with a spawned child");
    MUST(MPI_Send(&value, 1, MPI_INT, 0, kTag, child));
    MUST(MPI_Recv(&value, 1, MPI_INT, 0, kTag, child, MPI_STATUS_IGNORE));
    EXPECT_DATA(value == 42, "got %d", value);
  }
  MUST(MPI_Intercomm_merge(child, 0, &merged));
  step("exchanging data beside it");
  const int wrong = exchange_with(merged, my_peer, my_rank, my_peer);
  EXPECT_DATA(wrong == 0, "a value differs by %d", wrong);
  MUST(MPI_Comm_free(&merged));
  MUST(MPI_Comm_disconnect(&child));
}

CASE(X1_spawned_by_parents_and_child, .ranks = 2, .deadline_s = 15) {
  MPI_Comm child, merged, grandchild;
  int wrong = 0;
  if (!spawn(comm, "spawns", 1, "", &child)) return;
  MUST(MPI_Intercomm_merge(child, 0, &merged));
  if (!spawn(merged, "grandchild", 1, "", &grandchild)) return;
  step("exchanging data with a child of two worlds");
  wrong = exchange_with(grandchild, 0, my_rank, 5);
  EXPECT_DATA(wrong == 0, "a value differs by %d", wrong);
  if (my_rank == 0) {
    MUST(MPI_Recv(&wrong, 1, MPI_INT, 0, kTag, child, MPI_STATUS_IGNORE));
    EXPECT_DATA(wrong == 0, "at the child a value differs by %d", wrong);
    MUST(MPI_Recv(&wrong, 1, MPI_INT, 0, kTag, grandchild, MPI_STATUS_IGNORE));
    EXPECT_DATA(wrong == 0, "at the grandchild values differ by %d", wrong);
  }
  MUST(MPI_Comm_disconnect(&grandchild));
  MUST(MPI_Comm_free(&merged));
  MUST(MPI_Comm_disconnect(&child));
}

CASE(X1_connected_worlds, .ranks = 2, .deadline_s = 15) {
  char port[MPI_MAX_PORT_NAME] = "";
  MPI_Comm server, client;
  if (!spawn(comm, "accepts", 2, "", &server)) return;
  step("handing on the port's name");
  if (my_rank == 0) {
    MUST(MPI_Recv(port, sizeof(port), MPI_CHAR, 0, kConnectTag, server, MPI_STATUS_IGNORE));
  }
  MUST(MPI_Bcast(port, sizeof(port), MPI_CHAR, 0, comm));
  if (port[0] == 0) {
    case_skip("MPI_Open_port fails here");
  } else if (spawn(comm, "connects", 2, "", &client)) {
    if (my_rank == 0) {
      int wrong = 1;
      MUST(MPI_Send(port, sizeof(port), MPI_CHAR, 0, kConnectTag, client));
      step("waiting for two worlds that connect");
      MUST(MPI_Recv(&wrong, 1, MPI_INT, 0, kConnectTag, server, MPI_STATUS_IGNORE));
      EXPECT_DATA(wrong == 0, "a value is wrong");
    }
    MUST(MPI_Comm_disconnect(&client));
  }
  MUST(MPI_Comm_disconnect(&server));
}

CASE(X1_connected_groups, .ranks = 4, .deadline_s = 15) {
  char port[MPI_MAX_PORT_NAME] = "";
  MPI_Comm half, other;
  const int high = my_rank >= 2;
  MUST(MPI_Comm_split(comm, high, 0, &half));
  MUST(MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN));
  if (my_rank == 0 && MPI_Open_port(MPI_INFO_NULL, port) != MPI_SUCCESS) port[0] = 0;
  MUST(MPI_Bcast(port, sizeof(port), MPI_CHAR, 0, comm));
  if (port[0] == 0) {
    case_skip("MPI_Open_port fails here");
    MUST(MPI_Comm_free(&half));
    return;
  }
  for (int again = 0; again < 2; ++again) {
    step("connecting");
    if (high) {
      MUST(MPI_Comm_connect(port, MPI_INFO_NULL, 1, half, &other));
    } else {
      MUST(MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &other));
    }
    step("exchanging data over a connection");
    EXPECT_DATA(exchange_everywhere(other, high) == 0, "a value is wrong");
    MUST(MPI_Comm_disconnect(&other));
  }
  if (my_rank == 0) MUST(MPI_Close_port(port));
  MUST(MPI_Comm_free(&half));
}

CASE(X1_connected_processes, .ranks = 2, .deadline_s = 10) {
  char port[MPI_MAX_PORT_NAME] = "";
  MPI_Comm other;
  if (my_rank == 0) {
    if (MPI_Open_port(MPI_INFO_NULL, port) != MPI_SUCCESS) port[0] = 0;
    MUST(MPI_Send(port, sizeof(port), MPI_CHAR, 1, kConnectTag, comm));
  } else {
    MUST(MPI_Recv(port, sizeof(port), MPI_CHAR, 0, kConnectTag, comm, MPI_STATUS_IGNORE));
  }
  if (port[0] == 0) {
    case_skip("MPI_Open_port fails here");
    return;
  }
  if (my_rank == 0) {
    step("accepting a connection");
    MUST(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other));
    MUST(MPI_Close_port(port));
  } else {
    step("connecting");
    MUST(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other));
  }
  step("exchanging data over a connection");
  const int wrong = exchange_with(other, 0, my_rank, my_peer);
  EXPECT_DATA(wrong == 0, "a value differs by %d", wrong);
  MUST(MPI_Comm_disconnect(&other));
}

/// A call that the MPI refuses to this process alone.
static int refused_call(int call) {
  enum { kNoRank = 99 };
  char port[] = "none", *commands[] = {own_path()};
  const int ones[] = {1};
  const MPI_Info infos[] = {MPI_INFO_NULL};
  MPI_Comm made;
  switch (call) {
    case 0:
      return MPI_Comm_create(comm, MPI_GROUP_NULL, &made);
    case 1:
      return MPI_Comm_spawn(commands[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, kNoRank, comm, &made,
                            MPI_ERRCODES_IGNORE);
    case 2:
      return MPI_Comm_spawn_multiple(1, commands, MPI_ARGVS_NULL, ones, infos, kNoRank, comm, &made,
                                     MPI_ERRCODES_IGNORE);
    case 3:
      return MPI_Comm_connect(port, MPI_INFO_NULL, kNoRank, comm, &made);
    case 4:
      return MPI_Comm_accept(port, MPI_INFO_NULL, kNoRank, comm, &made);
    default:  // as the root that the others wait for
      return MPI_Comm_spawn(commands[0], MPI_ARGV_NULL, -1, MPI_INFO_NULL, my_rank, comm, &made,
                            MPI_ERRCODES_IGNORE);
  }
}

/// It does not affect the next call that all make together.
CASE(X1_constructors_refused_to_one_process, .ranks = 2) {
  for (int call = 0; call < 6; ++call) {
    if (my_rank == 1) EXPECT(refused_call(call) != MPI_SUCCESS, "call %d was not refused", call);
    MPI_Comm made;
    MUST(MPI_Comm_dup(comm, &made));
    step("exchanging data after a call that was refused to one process");
    const int wrong = exchange_with(made, my_peer, my_rank, my_peer);
    EXPECT_DATA(wrong == 0, "call %d: a value differs by %d", call, wrong);
    MUST(MPI_Comm_free(&made));
  }
}
