/* Programs for the summary of a run: no message at all (none), a message on MPI_COMM_WORLD (world),
 * and communicators of a session (session). */

#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int right(MPI_Comm comm) {
  int rank, size, got = -1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT, (rank + size - 1) % size,
               0, comm, MPI_STATUS_IGNORE);
  return got == (rank + size - 1) % size;
}

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "none";
  int is_right = 1, rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (strcmp(what, "world") == 0) is_right = right(MPI_COMM_WORLD);
  if (strcmp(what, "session") == 0) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm, copy;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "larklane.summary", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL,
                               &comm);
    MPI_Comm_dup(comm, &copy);
    is_right = right(copy);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  printf("rank %d %s\n", rank, is_right ? "ok" : "wrong");
  MPI_Finalize();
  return !is_right;
}
