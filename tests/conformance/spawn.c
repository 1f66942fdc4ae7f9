// Spawned processes and processes that connect (X1): partitioned pairs across worlds.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "case.h"
#include "harness.h"

enum { kTag = 73, kParts = 4, kRounds = 3, kConnectTag = 74 };

/// What parent `index` and the child send each other; both sides call it.
/// @return the first difference, or 0
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

/// In the child: with parent 0 over the intercommunicator, with parent 1 over the merged one.
int child_main(void) {
  MPI_Comm parent, merged;
  int provided;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &provided);
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL) return 2;
  int wrong = exchange_with(parent, 0, 9, 1);
  MPI_Intercomm_merge(parent, 1, &merged);
  wrong |= exchange_with(merged, 1, 9, 2);
  MPI_Reduce(&wrong, NULL, 1, MPI_INT, MPI_BOR, 0, merged);
  MPI_Comm_free(&merged);
  MPI_Comm_disconnect(&parent);
  MPI_Finalize();
  return 0;
}

/// Spawns `children` processes of this program, which do what `what` says. A case is skipped only
/// where the MPI spawns nothing natively, either.
static bool spawn(char* what, int children, const char* larklane, MPI_Comm* child) {
  char self[4096] = "", *arguments[] = {"--child", what, NULL};
  MPI_Info info;
  REQUIRE(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0, "readlink failed");
  MUST(MPI_Info_create(&info));
  MUST(MPI_Info_set(info, "map_by", ":OVERSUBSCRIBE"));
  if (larklane[0] != '\0') MUST(MPI_Info_set(info, "larklane", larklane));
  step("spawning");
  int code = MPI_Comm_spawn(self, arguments, children, info, 0, comm, child, MPI_ERRCODES_IGNORE);
  if (code != MPI_SUCCESS) {
    MUST(MPI_Info_set(info, "larklane", "off"));
    const int again =
        MPI_Comm_spawn(self, arguments, children, info, 0, comm, child, MPI_ERRCODES_IGNORE);
    REQUIRE(again != MPI_SUCCESS, "MPI_Comm_spawn fails only under Larklane");
    case_skip("MPI_Comm_spawn fails here");
  }
  MUST(MPI_Info_free(&info));
  return code == MPI_SUCCESS;
}

CASE(X1_spawned_child, .ranks = 2, .deadline_s = 10) {
  MPI_Comm child, merged;
  int wrong = 0, any = 0;
  if (!spawn("one", 1, "", &child)) return;
  step("exchanging data with a spawned child");
  if (my_rank == 0) wrong = exchange_with(child, 0, 1, 9);
  MUST(MPI_Intercomm_merge(child, 0, &merged));
  if (my_rank == 1) wrong |= exchange_with(merged, 2, 2, 9);
  MUST(MPI_Reduce(&wrong, &any, 1, MPI_INT, MPI_BOR, 0, merged));
  EXPECT_DATA(wrong == 0 && any == 0, "values differ by %d here, by %d somewhere", wrong, any);
  MUST(MPI_Comm_free(&merged));
  MUST(MPI_Comm_disconnect(&child));
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
