// The end of a wait whose peer fails, and that nothing else is harmed by it.
#pragma once

#include <mpi.h>
#include <stdio.h>

/// Rank 0 sends to rank 1. @param count  bytes of a partition
static MPI_Request init_pair(int is_sender, void* buffer, int partitions, MPI_Count count) {
  MPI_Request request;
  if (is_sender)
    MPI_Psend_init(buffer, partitions, count, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &request);
  else
    MPI_Precv_init(buffer, partitions, count, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &request);
  return request;
}

/// MPI_Wait that prints its error. @return its code
static int wait_for_error(MPI_Request* request, double* seconds, char text[MPI_MAX_ERROR_STRING]) {
  const double began = MPI_Wtime();
  const int code = MPI_Wait(request, MPI_STATUS_IGNORE);
  *seconds = MPI_Wtime() - began;
  if (code == MPI_SUCCESS) return code;
  int length = 0;
  MPI_Error_string(code, text, &length);
  printf("survivor: after %.2f s: %s\n", *seconds, text);
  return code;
}

/// A round of this rank's channel to itself. @return 0: it has worked
static int use_another(void) {
  char out = 1, in = 0;
  MPI_Request pair[2];
  MPI_Psend_init(&out, 1, 1, MPI_BYTE, 0, 9, MPI_COMM_SELF, MPI_INFO_NULL, &pair[0]);
  MPI_Precv_init(&in, 1, 1, MPI_BYTE, 0, 9, MPI_COMM_SELF, MPI_INFO_NULL, &pair[1]);
  MPI_Startall(2, pair);
  MPI_Pready(0, pair[0]);
  MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
  for (int r = 0; r < 2; ++r) MPI_Request_free(&pair[r]);
  return in != 1;
}
