// What every MPI must be able to do between hosts: `exchange ROUNDS [--wait | --meet FILE]`. All
// ranks send to all, with Isend and Irecv, from 0 B to 1 MiB, then one partitioned message to the
// next rank (if this MPI has them; one round: Open MPI's later ones may be wrong). Rank 0 prints
// `exchange: R ranks on H hosts: ok`. With --wait each rank then prints `waiting` and goes on until
// it is killed. With --meet they enter MPI_Finalize together (meet_by_file.h).
#define _DEFAULT_SOURCE  // usleep
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meet_by_file.h"

enum { kSizeMax = 1 << 20, kPartitions = 8, kPartitionBytes = 4096 };

static int rank, ranks;

static unsigned char expected(int from, int to, int round, int at) {
  return (unsigned char)(from * 31 + to * 17 + round * 7 + at);
}

static void wrong(const char* what, int from) {
  fprintf(stderr, "exchange: rank %d: wrong data from rank %d: %s\n", rank, from, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void exchange(int round, int bytes, unsigned char* to_send, unsigned char* received) {
  MPI_Request* requests = malloc(2 * (size_t)ranks * sizeof *requests);
  for (int peer = 0; peer < ranks; ++peer) {
    unsigned char* out = to_send + (size_t)peer * kSizeMax;
    for (int at = 0; at < bytes; ++at) {
      out[at] = expected(rank, peer, round, at);
    }
    MPI_Irecv(received + (size_t)peer * kSizeMax, bytes, MPI_BYTE, peer, round, MPI_COMM_WORLD,
              &requests[2 * peer]);
    MPI_Isend(out, bytes, MPI_BYTE, peer, round, MPI_COMM_WORLD, &requests[2 * peer + 1]);
  }
  MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
  free(requests);
  for (int peer = 0; peer < ranks; ++peer) {
    for (int at = 0; at < bytes; ++at) {
      if (received[(size_t)peer * kSizeMax + (size_t)at] != expected(peer, rank, round, at)) {
        wrong("message", peer);
      }
    }
  }
}

#if MPI_VERSION >= 4
static void partitioned(unsigned char* to_send, unsigned char* received) {
  const int to = (rank + 1) % ranks;
  const int from = (rank + ranks - 1) % ranks;
  MPI_Request requests[2];
  for (int at = 0; at < kPartitions * kPartitionBytes; ++at) {
    to_send[at] = expected(rank, to, -1, at);
  }
  MPI_Psend_init(to_send, kPartitions, kPartitionBytes, MPI_BYTE, to, 9, MPI_COMM_WORLD,
                 MPI_INFO_NULL, &requests[0]);
  MPI_Precv_init(received, kPartitions, kPartitionBytes, MPI_BYTE, from, 9, MPI_COMM_WORLD,
                 MPI_INFO_NULL, &requests[1]);
  MPI_Startall(2, requests);
  for (int partition = 0; partition < kPartitions; ++partition) {
    MPI_Pready(partition, requests[0]);
  }
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  for (int at = 0; at < kPartitions * kPartitionBytes; ++at) {
    if (received[at] != expected(from, rank, -1, at)) {
      wrong("partitioned", from);
    }
  }
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
}
#else
static void partitioned(unsigned char* to_send, unsigned char* received) {
  (void)to_send;
  (void)received;
}
#endif

// As MPI sees it: what can share memory is one host. The launcher's names are printed beside it.
static int count_hosts(void) {
  MPI_Comm on_host;
  int on_host_rank, is_first, hosts;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &on_host);
  MPI_Comm_rank(on_host, &on_host_rank);
  is_first = on_host_rank == 0;
  MPI_Allreduce(&is_first, &hosts, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_free(&on_host);
  return hosts;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int rounds = argc > 1 ? atoi(argv[1]) : 1;
  const int waits = argc > 2 && strcmp(argv[2], "--wait") == 0;
  const char* meeting = argc > 3 && strcmp(argv[2], "--meet") == 0 ? argv[3] : NULL;
  char name[MPI_MAX_PROCESSOR_NAME];
  int length;
  MPI_Get_processor_name(name, &length);
  printf("rank %d is on %s\n", rank, name);
  unsigned char* to_send = malloc((size_t)ranks * kSizeMax);
  unsigned char* received = malloc((size_t)ranks * kSizeMax);
  const int hosts = count_hosts();
  for (int round = 0; round < rounds; ++round) {
    for (int bytes = 0; bytes <= kSizeMax; bytes = bytes == 0 ? 8 : bytes * 8) {
      exchange(round, bytes, to_send, received);
    }
  }
  partitioned(to_send, received);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    printf("exchange: %d ranks on %d hosts: ok\n", ranks, hosts);
  }
  if (waits) {
    printf("waiting\n");
    fflush(stdout);
    for (int round = 0;; round = (round + 1) % 1000) {
      exchange(round, 8, to_send, received);
    }
  }
  free(to_send);
  free(received);
  if (meeting && meet_by_file(meeting, ranks) != 0) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
