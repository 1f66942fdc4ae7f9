// Hints that MPI_Comm_set_info gives a communicator with messages: two ranks. Each line is
// "rank N WHAT KEY VALUE": the hints that MPI_Comm_get_info reports. Then messages of many tags
// must arrive in the order that these hints promise: "rank N ok".

#include "carried.h"

enum { kTags = 40, kRounds = 100 };

static const char* const kKeys[] = {"mpi_assert_no_any_tag", "mpi_assert_no_any_source",
                                    "mpi_assert_allow_overtaking", "mpi_assert_exact_length"};
enum { kKeyCount = sizeof kKeys / sizeof kKeys[0] };

static MPI_Info all_hints(const char* value) {
  MPI_Info info;
  MPI_Info_create(&info);
  for (int key = 0; key < kKeyCount; ++key) MPI_Info_set(info, kKeys[key], value);
  return info;
}

static void set(MPI_Comm comm, const char* value) {
  MPI_Info info = all_hints(value);
  const int code = MPI_Comm_set_info(comm, info);
  expect(code == MPI_SUCCESS, "MPI_Comm_set_info", code);
  char kept[16] = "";
  int flag = 0;
  MPI_Info_get(info, kKeys[0], (int)sizeof kept - 1, kept, &flag);
  expect(flag && strcmp(kept, value) == 0, "the program's info object has changed", flag);
  MPI_Info_free(&info);
}

static void report(MPI_Comm comm, const char* what) {
  MPI_Info info;
  MPI_Comm_get_info(comm, &info);
  for (int key = 0; key < kKeyCount; ++key) {
    char value[16] = "";
    int flag = 0;
    MPI_Info_get(info, kKeys[key], (int)sizeof value - 1, value, &flag);
    printf("rank %d %s %s %s\n", my_rank, what, kKeys[key], flag ? value : "none");
  }
  MPI_Info_free(&info);
}

/// By wildcards: in the order of the sends. Else: each tag in its order.
static void exchange(MPI_Comm comm, int by_wildcards) {
  for (int round = 0; round < kRounds; ++round) {
    for (int tag = 0; tag < kTags; ++tag) {
      int value = round * kTags + tag;
      if (my_rank == 0) MPI_Send(&value, 1, MPI_INT, 1, tag, comm);
    }
    for (int i = 0; i < kTags && my_rank == 1; ++i) {
      const int tag = by_wildcards ? MPI_ANY_TAG : kTags - 1 - i;
      const int wanted = round * kTags + (by_wildcards ? i : tag);
      int value = -1;
      MPI_Recv(&value, 1, MPI_INT, by_wildcards ? MPI_ANY_SOURCE : 0, tag, comm, MPI_STATUS_IGNORE);
      expect(value == wanted, "out of order", value);
    }
  }
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  exchange(comm, 1);
  set(comm, "true");
  report(comm, "later");
  exchange(comm, 0);
  set(comm, "false");
  report(comm, "never");
  exchange(comm, 1);
  MPI_Comm_free(&comm);
  MPI_Info info = all_hints("true");
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
  MPI_Info_free(&info);
  report(comm, "first");
  exchange(comm, 0);
  set(comm, "false");
  report(comm, "kept");
  exchange(comm, 0);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  printf("rank %d ok\n", my_rank);
  return 0;
}
