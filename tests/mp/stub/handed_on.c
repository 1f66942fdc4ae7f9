// Calls every call on requests once: on requests of Larklane's, on the MPI's own, or on both in one
// array. counter.c counts the calls that a tool sees. One process.
//
//   handed_on ours|natives|mixed

#include <mpi.h>
#include <stdio.h>
#include <string.h>

static MPI_Request all[2];
static int count, with_ours, with_natives;
static int in[2], out[2];

// One pair to this process itself: [0] receives, [1] sends; of ours, of the MPI's, or one of each.
static MPI_Request ours[2], natives[2];

static void make(void) {
  if (with_ours) {
    MPI_Precv_init(&in[0], 1, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &ours[0]);
    MPI_Psend_init(&out[0], 1, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &ours[1]);
  }
  if (with_natives) {
    MPI_Recv_init(&in[1], 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &natives[0]);
    MPI_Send_init(&out[1], 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &natives[1]);
  }
  count = 0;
  if (with_ours) all[count++] = ours[0];
  if (with_natives) all[count++] = natives[0];
}

static void check(const char* call) {
  if ((with_ours && in[0] != out[0]) || (with_natives && in[1] != out[1]))
    printf("%s: wrong data\n", call);
}

// A round of everything, up to the completion of the receives, which is the call in question.
static void begin(void) {
  ++out[0];
  ++out[1];
  MPI_Startall(count, all);
  if (with_natives) MPI_Start(&natives[1]);
  if (with_ours) MPI_Start(&ours[1]), MPI_Pready(0, ours[1]);
}
static void end(const char* call) {
  if (with_natives) MPI_Wait(&natives[1], MPI_STATUS_IGNORE);
  if (with_ours) MPI_Wait(&ours[1], MPI_STATUS_IGNORE);
  check(call);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  with_ours = strcmp(argv[1], "natives") != 0;
  with_natives = strcmp(argv[1], "ours") != 0;
  make();
  MPI_Status statuses[2];
  int flag, index, done, indices[2];

  begin();
  MPI_Waitall(count, all, statuses);
  end("Waitall");
  begin();
  do MPI_Testall(count, all, &flag, statuses);
  while (!flag);
  end("Testall");
  begin();
  for (int left = count; left > 0; --left) MPI_Waitany(count, all, &index, statuses);
  end("Waitany");
  begin();
  for (int left = count; left > 0; left -= flag) {
    MPI_Testany(count, all, &index, &flag, statuses);
    if (flag && index == MPI_UNDEFINED) puts("Testany: nothing active");
  }
  end("Testany");
  begin();
  for (int left = count; left > 0; left -= done) MPI_Waitsome(count, all, &done, indices, statuses);
  end("Waitsome");
  begin();
  for (int left = count; left > 0; left -= done) MPI_Testsome(count, all, &done, indices, statuses);
  end("Testsome");

  // Of inactive requests.
  MPI_Waitall(count, all, statuses);
  MPI_Testall(count, all, &flag, statuses);
  if (!flag) puts("Testall of inactive requests: no");
  MPI_Waitany(count, all, &index, statuses);
  if (index != MPI_UNDEFINED) puts("Waitany of inactive requests: an index");
  MPI_Testany(count, all, &index, &flag, statuses);
  if (!flag || index != MPI_UNDEFINED) puts("Testany of inactive requests: an index");
  MPI_Waitsome(count, all, &done, indices, statuses);
  if (done != MPI_UNDEFINED) puts("Waitsome of inactive requests: a count");
  MPI_Testsome(count, all, &done, indices, statuses);
  if (done != MPI_UNDEFINED) puts("Testsome of inactive requests: a count");

  for (int i = 0; i < 2; ++i) {
    MPI_Request* const pair = i == 0 ? ours : natives;
    if (!(i == 0 ? with_ours : with_natives)) continue;
    MPI_Request_get_status(pair[0], &flag, statuses);
    MPI_Start(&pair[0]), MPI_Start(&pair[1]);
    if (i == 0) MPI_Pready_range(0, 0, pair[1]);
    do MPI_Test(&pair[0], &flag, statuses);
    while (!flag);
    MPI_Wait(&pair[1], statuses);
    MPI_Request_free(&pair[0]), MPI_Request_free(&pair[1]);
  }
  puts("handed_on: ok");
  MPI_Finalize();
  return 0;
}
