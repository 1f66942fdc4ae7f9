/* refused_start [POLICY]: a partitioned send whose memory or policy (info key larklane_policy) is
 * refused: an MPI error that names the refusal, or the fallback with one warning; never a hang.
 * Prints the error; exit status 0 if the program could go on. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank;
  static char buffer[1 << 20];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Info info = MPI_INFO_NULL;
  if (argc > 1) {
    MPI_Info_create(&info);
    MPI_Info_set(info, "larklane_policy", argv[1]);
  }
  const int code =
      MPI_Psend_init(buffer, 4, 1 << 18, MPI_BYTE, 1 - rank, 3, MPI_COMM_WORLD, info, &request);
  if (code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    printf("%s\n", text);
  } else {
    MPI_Request_free(&request);
  }
  if (info != MPI_INFO_NULL) MPI_Info_free(&info);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
