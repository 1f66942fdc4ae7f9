// A program of two processes: messages on a communicator of a session before, during and after
// MPI_Init. It prints a verdict as the suite does.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMessages = 200, kLong = 1 << 20 };

static const char kName[] = "PX9_messages_of_a_session_around_init";

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)

static int rank, wrong;

/// Messages of two sizes in both directions.
static void exchange(MPI_Comm on, int round) {
  static int out[kLong / 4], in[kLong / 4];
  for (int i = 0; i < kMessages; ++i) {
    const int count = i % 50 == 49 ? kLong / 4 : 4;
    for (int k = 0; k < count; ++k) out[k] = round * 1000 + i + k;
    MPI_Sendrecv(out, count, MPI_INT, 1 - rank, 3, in, count, MPI_INT, 1 - rank, 3, on,
                 MPI_STATUS_IGNORE);
    for (int k = 0; k < count; ++k) wrong += in[k] != round * 1000 + i + k;
  }
}

int main(int argc, char** argv) {
  MPI_Session session;
  MPI_Group group;
  MPI_Comm mine, after;
  MPI_Request request[2];
  int long_out = 77, long_in = 0;
  if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session) != MPI_SUCCESS) return 2;
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm_create_from_group(group, "before", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &mine);
  MPI_Comm_rank(mine, &rank);
  exchange(mine, 1);
  MPI_Irecv(&long_in, 1, MPI_INT, 1 - rank, 9, mine, &request[0]);  // open across MPI_Init
  if (rank == 0) MPI_Isend(&long_out, 1, MPI_INT, 1 - rank, 9, mine, &request[1]);
  MPI_Init(&argc, &argv);
  if (rank == 1) MPI_Isend(&long_out, 1, MPI_INT, 1 - rank, 9, mine, &request[1]);
  MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
  wrong += long_in != 77;
  exchange(mine, 2);
  exchange(MPI_COMM_WORLD, 3);
  MPI_Comm_create_from_group(group, "after", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &after);
  exchange(after, 4);
  int all = 0;
  MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Comm_free(&after);
  MPI_Finalize();
  exchange(mine, 5);
  if (rank == 0 && all + wrong == 0) printf("ok %s\n", kName);
  if (rank == 0 && all + wrong != 0) {
    printf("not ok %s: rank 0: wrong data: %d integers are wrong\n", kName, all + wrong);
  }
  MPI_Group_free(&group);
  MPI_Comm_free(&mine);
  MPI_Session_finalize(&session);
  return all + wrong != 0;
}

#else

int main(void) {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank == NULL || rank[0] == '0') printf("skip %s: MPI before 4.0\n", kName);
  return 0;
}

#endif
