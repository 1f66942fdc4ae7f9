// 1,000 channels from rank 0 to rank 1, which makes no MPI call while rank 0 sends: `crowd
// [CHANNELS]`. Once rank 1 has started none of its receives, once all of them. Then every byte must
// be right, and the device must not have reported a receiver that was not ready. Rank 0 prints
// `crowd: N channels: ok`, and the device's counters.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kPartitions = 4, kPartitionBytes = 16, kBytes = kPartitions * kPartitionBytes };

static int rank, channels = 1000;
static unsigned char *data;
static MPI_Request *requests;
static const char *const kFlag = "/tmp/crowd.sent";
static const char *const kReady = "/tmp/crowd.ready";

static unsigned char expected(int round, int channel, int at) {
  return (unsigned char)(round * 101 + channel * 7 + at);
}

/// Of all devices together; -1: none has such a counter.
static long device_count(const char *name) {
  char line[512];
  snprintf(line, sizeof line, "cat /sys/class/infiniband/*/ports/1/hw_counters/%s 2>/dev/null",
           name);
  FILE *out = popen(line, "r");
  long sum = -1, one = 0;
  while (out != NULL && fscanf(out, "%ld", &one) == 1) sum = (sum < 0 ? 0 : sum) + one;
  if (out != NULL) pclose(out);
  return sum;
}

static void put(const char *path) {
  FILE *file = fopen(path, "w");
  if (file == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  fclose(file);
}

/// Outside of MPI.
static void wait_for(const char *path) {
  while (access(path, F_OK) != 0) usleep(20000);
  unlink(path);
}

static void send_all(int round) {
  for (int n = 0; n < channels; ++n)
    for (int at = 0; at < kBytes; ++at) data[n * kBytes + at] = expected(round, n, at);
  MPI_Startall(channels, requests);
  wait_for(kReady);
  for (int n = 0; n < channels; ++n)
    for (int p = 0; p < kPartitions; ++p) MPI_Pready(p, requests[n]);
  // Posted operations go out while this rank progresses, however long that takes.
  int flag = 0;
  const time_t end = time(NULL) + 3;
  while (time(NULL) < end) MPI_Test(&requests[channels - 1], &flag, MPI_STATUS_IGNORE);
  put(kFlag);
  MPI_Waitall(channels, requests, MPI_STATUSES_IGNORE);
}

static void receive_all(int round, int is_early) {
  memset(data, 0, (size_t)channels * kBytes);
  if (is_early) MPI_Startall(channels, requests);
  put(kReady);
  wait_for(kFlag);
  if (!is_early) MPI_Startall(channels, requests);
  MPI_Waitall(channels, requests, MPI_STATUSES_IGNORE);
  for (int n = 0; n < channels; ++n) {
    for (int at = 0; at < kBytes; ++at) {
      if (data[n * kBytes + at] != expected(round, n, at)) {
        fprintf(stderr, "crowd: round %d: wrong byte %d of channel %d\n", round, at, n);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc > 1) channels = atoi(argv[1]);
  data = calloc((size_t)channels, kBytes);
  requests = malloc((size_t)channels * sizeof *requests);
  if (data == NULL || requests == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  if (rank == 0) {
    unlink(kFlag);
    unlink(kReady);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const long before[] = {device_count("rcvd_rnr_err"), device_count("send_rnr_err")};
  for (int n = 0; n < channels; ++n) {
    unsigned char *const buffer = data + (size_t)n * kBytes;
    if (rank == 0)
      MPI_Psend_init(buffer, kPartitions, kPartitionBytes, MPI_BYTE, 1, n, MPI_COMM_WORLD,
                     MPI_INFO_NULL, &requests[n]);
    else
      MPI_Precv_init(buffer, kPartitions, kPartitionBytes, MPI_BYTE, 0, n, MPI_COMM_WORLD,
                     MPI_INFO_NULL, &requests[n]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  sleep(2);  // the helpers match them; no process calls MPI
  for (int round = 0; round < 2; ++round) {
    if (rank == 0)
      send_all(round);
    else
      receive_all(round, round == 1);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  for (int n = 0; n < channels; ++n) MPI_Request_free(&requests[n]);
  const long not_ready[] = {device_count("rcvd_rnr_err") - before[0],
                            device_count("send_rnr_err") - before[1]};
  if (rank == 0) {
    printf("crowd: receivers not ready: %ld seen, %ld said\n", not_ready[0], not_ready[1]);
    if (not_ready[0] != 0 || not_ready[1] != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    printf("crowd: %d channels: ok\n", channels);
  }
  MPI_Finalize();
  return 0;
}
