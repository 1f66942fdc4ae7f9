// Error handlers that throw: the exception passes through every intercepted call that can raise an
// error. No lock is held while the handler runs, and the objects of the call can be used
// afterwards. Two processes; the second one only takes part where the first needs a partner.
//
//   throwing [--native]     --native: the calls of the MPI's own alone, to see which exceptions it
//   lets pass
//   throwing --session-init    under options that are wrong: MPI_Session_init alone

#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// Open MPI 5 has them, and reports MPI 3.1.
#if MPI_VERSION >= 4 || defined(MPI_ERR_SESSION)
#define HAS_SESSIONS 1
#else
#define HAS_SESSIONS 0
#endif

namespace {

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

int failures = 0, caught_count = 0, rank = 0;
bool is_native = false, is_in_handler = false;
MPI_Comm comm;  // a duplicate of MPI_COMM_WORLD

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("rank %d: FAILED: %s\n", rank, what.c_str());
  std::fflush(stdout);
}

constexpr int kPartitions = 4;

/// A send to this process itself and its receive.
struct Pair {
  int from[kPartitions] = {}, to[kPartitions] = {};
  MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL;

  explicit Pair(int tag, int receive_count = 1) {
    MPI_Psend_init(from, kPartitions, 1, MPI_INT, rank, tag, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(to, receive_count == 1 ? kPartitions : 1, receive_count, MPI_INT, rank, tag,
                   comm, MPI_INFO_NULL, &receive);
  }
  void start() {
    MPI_Start(&receive);
    MPI_Start(&send);
  }
  void finish(const std::string& name) {
    for (int i = 0; i < kPartitions; ++i) from[i] = ++last;
    for (int i = 0; i < kPartitions; ++i) MPI_Pready(i, send);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    expect(std::memcmp(from, to, sizeof from) == 0, name + ": wrong bytes in the round after it");
  }
  void round(const std::string& name) {
    start();
    finish(name);
  }
  void free() {
    MPI_Request_free(&send);
    MPI_Request_free(&receive);
  }
  static int last;
};
int Pair::last = 0;

/// Calls that would wait for any lock of ours: its registry's, its table's, its engine's.
void use_larklane() {
  int word = 0;
  MPI_Request request;
  if (MPI_Psend_init(&word, 1, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_SELF, MPI_INFO_NULL,
                     &request) == MPI_SUCCESS)
    MPI_Request_free(&request);
}

void raise_it() {
  if (!is_in_handler && !is_native) {
    is_in_handler = true;
    use_larklane();
    is_in_handler = false;
  }
  throw Refused("MPI");
}
void on_comm_error(MPI_Comm*, int*, ...) { raise_it(); }

/// @param must_raise  false: an MPI may let it pass without an error
bool refused(const std::string& name, bool must_raise, const std::function<void()>& call) {
  std::printf("rank %d: %s\n", rank, name.c_str());
  std::fflush(stdout);
  bool is_caught = false;
  try {
    call();
  } catch (const Refused&) {
    is_caught = true;
  }
  caught_count += is_caught ? 1 : 0;
  if (must_raise) expect(is_caught, name + ": no exception");
  return is_caught;
}

void refuse_inits() {
  int word[4] = {};
  MPI_Request request;
  const auto psend = [&](int partitions, MPI_Count count, MPI_Datatype type, int to, int tag,
                         MPI_Comm on) {
    MPI_Psend_init(word, partitions, count, type, to, tag, on, MPI_INFO_NULL, &request);
  };
  refused("Psend_init rank", true, [&] { psend(1, 1, MPI_INT, 77, 0, comm); });
  refused("Psend_init tag", true, [&] { psend(1, 1, MPI_INT, 0, -7, comm); });
  refused("Psend_init partitions", true, [&] { psend(0, 1, MPI_INT, 0, 0, comm); });
  refused("Psend_init count", true, [&] { psend(1, -1, MPI_INT, 0, 0, comm); });
  refused("Psend_init type", true, [&] { psend(1, 1, MPI_DATATYPE_NULL, 0, 0, comm); });
  refused("Psend_init comm", true, [&] { psend(1, 1, MPI_INT, 0, 0, MPI_COMM_NULL); });
  refused("Psend_init buffer", true,
          [&] { MPI_Psend_init(nullptr, 1, 1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &request); });
  refused("Psend_init uncommitted type", true, [&] {
    MPI_Datatype type;
    MPI_Type_contiguous(2, MPI_INT, &type);
    psend(1, 1, type, 0, 0, comm);
  });
  refused("Precv_init rank", true,
          [&] { MPI_Precv_init(word, 1, 1, MPI_INT, 77, 0, comm, MPI_INFO_NULL, &request); });
}

void refuse_marks() {
  Pair pair(10);
  int flag = 0;
  int bad[] = {0, 9};
  refused("Pready inactive", true, [&] { MPI_Pready(0, pair.send); });
  refused("Pready_range inactive", true, [&] { MPI_Pready_range(0, 1, pair.send); });
  pair.start();
  refused("Pready range", true, [&] { MPI_Pready(9, pair.send); });
  refused("Pready of a receive", true, [&] { MPI_Pready(0, pair.receive); });
  refused("Pready of null", true, [&] { MPI_Pready(0, MPI_REQUEST_NULL); });
  refused("Pready_range", true, [&] { MPI_Pready_range(1, 9, pair.send); });
  refused("Pready_list", true, [&] { MPI_Pready_list(2, bad, pair.send); });
  refused("Parrived range", true, [&] { MPI_Parrived(pair.receive, 9, &flag); });
  refused("Parrived of a send", true, [&] { MPI_Parrived(pair.send, 0, &flag); });
  refused("Start", true, [&] { MPI_Start(&pair.send); });
  refused("Startall", true, [&] { MPI_Startall(1, &pair.send); });
  refused("Request_free", true, [&] { MPI_Request_free(&pair.send); });
  refused("Cancel", true, [&] { MPI_Cancel(&pair.receive); });
  pair.finish("marks");
  pair.start();
  MPI_Pready(0, pair.send);
  refused("Pready twice", true, [&] { MPI_Pready(0, pair.send); });
  MPI_Pready_range(1, kPartitions - 1, pair.send);
  MPI_Wait(&pair.send, MPI_STATUS_IGNORE);
  MPI_Wait(&pair.receive, MPI_STATUS_IGNORE);
  pair.round("Pready twice");
  pair.free();
}

/// Completion calls, on an array of one or two.
struct Completer {
  const char* name;
  std::function<void(int count, MPI_Request* requests)> call;
};
const std::vector<Completer>& completers() {
  static int flag, index, count, indices[2];
  static MPI_Status statuses[2];
  // Tests until something has happened.
  static const std::vector<Completer> all = {
      {"Waitall", [](int n, MPI_Request* r) { MPI_Waitall(n, r, statuses); }},
      {"Waitany", [](int n, MPI_Request* r) { MPI_Waitany(n, r, &index, statuses); }},
      {"Waitsome", [](int n, MPI_Request* r) { MPI_Waitsome(n, r, &count, indices, statuses); }},
      {"Testall",
       [](int n, MPI_Request* r) {
         for (flag = 0; flag == 0;) MPI_Testall(n, r, &flag, statuses);
       }},
      {"Testany",
       [](int n, MPI_Request* r) {
         for (flag = 0; flag == 0;) MPI_Testany(n, r, &index, &flag, statuses);
       }},
      {"Testsome",
       [](int n, MPI_Request* r) {
         for (count = 0; count == 0;) MPI_Testsome(n, r, &count, indices, statuses);
       }},
  };
  return all;
}

/// Rounds of ours that fail: their sizes differ.
void refuse_completions() {
  int tag = 20;
  const auto each = [&](const std::string& name, const std::function<void(MPI_Request*)>& call) {
    Pair pair(tag++, kPartitions + 1);
    MPI_Start(&pair.receive);
    if (refused(name, true, [&] { call(&pair.receive); }))
      expect(!refused(name + " again", false, [&] { MPI_Wait(&pair.receive, MPI_STATUS_IGNORE); }),
             name + ": still active after its error");
    pair.free();
  };
  for (const Completer& completer : completers())
    each(completer.name, [&](MPI_Request* request) { completer.call(1, request); });
  each("Wait", [](MPI_Request* request) { MPI_Wait(request, MPI_STATUS_IGNORE); });
  each("Test", [](MPI_Request* request) {
    for (int flag = 0; flag == 0;) MPI_Test(request, &flag, MPI_STATUS_IGNORE);
  });
}

/// A receive of the MPI's that is too short fails beside one of ours, which stays as it is.
void refuse_natives() {
  int tag = 40;
  for (const Completer& completer : completers()) {
    Pair pair(tag);
    int two[2] = {1, 2}, one = 0;
    MPI_Request send;
    MPI_Isend(two, 2, MPI_INT, rank, tag, comm, &send);
    MPI_Request both[2] = {MPI_REQUEST_NULL, pair.receive};
    MPI_Irecv(&one, 1, MPI_INT, rank, tag, comm, &both[0]);
    MPI_Start(&both[1]);
    MPI_Start(&pair.send);
    if (std::strstr(completer.name, "all") != nullptr) {
      MPI_Pready_range(0, kPartitions - 1, pair.send);
      refused(std::string("native ") + completer.name, true, [&] { completer.call(2, both); });
      expect(both[1] == pair.receive, "the handle has changed");
    } else {
      refused(std::string("native ") + completer.name, true, [&] { completer.call(2, both); });
      MPI_Pready_range(0, kPartitions - 1, pair.send);
    }
    MPI_Wait(&pair.receive, MPI_STATUS_IGNORE);
    MPI_Wait(&pair.send, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    pair.round(std::string("native ") + completer.name);
    pair.free();
    ++tag;
  }
}

/// Calls that the MPI refuses to the first process alone. Those on `comm` count as a constructor
/// until they are refused.
void refuse_constructors() {
  constexpr int kNoRank = 99;
  MPI_Comm made = MPI_COMM_NULL, null = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  int one[1] = {1};
  char none[] = "no such port", missing[] = "/no/such/program";
  char* commands[] = {missing};
  MPI_Info infos[] = {MPI_INFO_NULL};
  void* memory = nullptr;
  const auto each = [](const char* name, const std::function<void()>& call) {
    refused(name, false, call);
  };
  each("Comm_dup", [&] { MPI_Comm_dup(null, &made); });
  each("Comm_dup_with_info", [&] { MPI_Comm_dup_with_info(null, MPI_INFO_NULL, &made); });
  each("Comm_idup", [&] { MPI_Comm_idup(null, &made, &request); });
  each("Comm_split", [&] { MPI_Comm_split(null, 0, 0, &made); });
  each("Comm_split_type",
       [&] { MPI_Comm_split_type(null, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made); });
  each("Comm_create", [&] { MPI_Comm_create(comm, MPI_GROUP_NULL, &made); });
  each("Comm_create_group", [&] { MPI_Comm_create_group(null, MPI_GROUP_EMPTY, 0, &made); });
  each("Intercomm_create", [&] { MPI_Intercomm_create(null, 0, null, 0, 0, &made); });
  each("Intercomm_merge", [&] { MPI_Intercomm_merge(null, 0, &made); });
  each("Cart_create", [&] { MPI_Cart_create(null, 1, one, one, 0, &made); });
  each("Cart_sub", [&] { MPI_Cart_sub(null, one, &made); });
  each("Graph_create", [&] { MPI_Graph_create(null, 1, one, one, 0, &made); });
  each("Dist_graph_create",
       [&] { MPI_Dist_graph_create(null, 1, one, one, one, one, MPI_INFO_NULL, 0, &made); });
  each("Dist_graph_create_adjacent", [&] {
    MPI_Dist_graph_create_adjacent(null, 1, one, one, 1, one, one, MPI_INFO_NULL, 0, &made);
  });
  each("Comm_spawn", [&] {
    MPI_Comm_spawn(missing, MPI_ARGV_NULL, 1, MPI_INFO_NULL, kNoRank, comm, &made,
                   MPI_ERRCODES_IGNORE);
  });
  each("Comm_spawn at the root", [&] {
    MPI_Comm_spawn(missing, MPI_ARGV_NULL, -1, MPI_INFO_NULL, rank, comm, &made,
                   MPI_ERRCODES_IGNORE);
  });
  each("Comm_spawn_multiple", [&] {
    MPI_Comm_spawn_multiple(1, commands, MPI_ARGVS_NULL, one, infos, kNoRank, comm, &made,
                            MPI_ERRCODES_IGNORE);
  });
  each("Comm_accept", [&] { MPI_Comm_accept(none, MPI_INFO_NULL, kNoRank, comm, &made); });
  each("Comm_connect", [&] { MPI_Comm_connect(none, MPI_INFO_NULL, kNoRank, comm, &made); });
  each("Comm_free", [&] { MPI_Comm_free(&null); });
  each("Comm_disconnect", [&] { MPI_Comm_disconnect(&null); });
  each("Alloc_mem", [&] { MPI_Alloc_mem(-1, MPI_INFO_NULL, &memory); });
}

#if HAS_SESSIONS
void on_session_error(MPI_Session*, int*, ...) { raise_it(); }

/// Errors of a session, and of a communicator that is made from one with a handler of its own.
void refuse_in_session(MPI_Errhandler on_comm) {
  constexpr const char* kTag = "throwing";
  MPI_Errhandler handler;
  MPI_Session_create_errhandler(on_session_error, &handler);
  MPI_Session session = MPI_SESSION_NULL, null = MPI_SESSION_NULL;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
  MPI_Session_set_errhandler(session, handler);
  MPI_Group group = MPI_GROUP_NULL;
  refused("Group_from_session_pset", true,
          [&] { MPI_Group_from_session_pset(session, "mpi://nowhere", &group); });
  refused("Session_finalize", false, [&] { MPI_Session_finalize(&null); });
  MPI_Comm made = MPI_COMM_NULL;
  refused("Comm_create_from_group", false,
          [&] { MPI_Comm_create_from_group(MPI_GROUP_NULL, kTag, MPI_INFO_NULL, on_comm, &made); });
  // Not MPI_Intercomm_create_from_groups: Open MPI 5.0.11 itself reads through a null group.
  MPI_Group_from_session_pset(session, "mpi://SELF", &group);
  MPI_Comm_create_from_group(group, kTag, MPI_INFO_NULL, on_comm, &made);
  MPI_Group_free(&group);
  if (!is_native) {
    const MPI_Comm before = std::exchange(comm, made);
    const int rank_before = std::exchange(rank, 0);
    refuse_inits();
    refuse_marks();
    Pair(60).free();
    comm = before;
    rank = rank_before;
  }
  MPI_Comm_free(&made);
  MPI_Session_finalize(&session);
  MPI_Errhandler_free(&handler);
}

/// Under wrong options, which the first call refuses: the program has no session afterwards.
int refuse_session_init() {
  MPI_Errhandler handler;
  MPI_Session_create_errhandler(on_session_error, &handler);
  MPI_Session session = MPI_SESSION_NULL;
  is_native = true;  // the handler does not use MPI objects that are not there
  refused("Session_init", true, [&] { MPI_Session_init(MPI_INFO_NULL, handler, &session); });
  // The handler stays: without a session MPICH takes no call that would free it.
  std::printf("%s, %d exceptions\n", failures == 0 ? "ok" : "failed", caught_count);
  return failures == 0 ? 0 : 1;
}
#endif

/// Both processes still count the same communicators.
void match_across() {
  MPI_Comm child;
  MPI_Comm_dup(comm, &child);
  int word = rank;
  MPI_Request request;
  if (rank == 0)
    MPI_Psend_init(&word, 1, 1, MPI_INT, 1, 0, child, MPI_INFO_NULL, &request);
  else
    MPI_Precv_init(&word, 1, 1, MPI_INT, 0, 0, child, MPI_INFO_NULL, &request);
  MPI_Start(&request);
  if (rank == 0) MPI_Pready(0, request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(word == 0, "the pair between the processes has wrong bytes");
  MPI_Request_free(&request);
  MPI_Comm_free(&child);
}

}  // namespace

int main(int argc, char** argv) {
#if HAS_SESSIONS
  if (argc > 1 && std::strcmp(argv[1], "--session-init") == 0) return refuse_session_init();
#endif
  MPI_Init(&argc, &argv);
  is_native = argc > 1 && std::strcmp(argv[1], "--native") == 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(on_comm_error, &handler);
  for (MPI_Comm each : {MPI_COMM_WORLD, MPI_COMM_SELF, comm})
    MPI_Comm_set_errhandler(each, handler);
  if (rank == 0) {
    if (!is_native) {
      refuse_inits();
      refuse_marks();
      refuse_completions();
      refuse_natives();
    }
    refuse_constructors();
#if HAS_SESSIONS
    refuse_in_session(handler);
#endif
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (!is_native) match_across();
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%s, %d exceptions\n", failures == 0 ? "ok" : "failed", caught_count);
  MPI_Comm_free(&comm);
  MPI_Errhandler_free(&handler);
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
