// Partitioned rounds between two ranks in both directions: partitions that go through slots, and
// ones that go by attach. Prints `rank R: rounds ok`.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPartitions = 4, kRounds = 4, kSmall = 1000, kLarge = 300000 };

static int rank;

static unsigned char byte_of(int from, int round, int partition) {
  return (unsigned char)(from * 101 + round * 7 + partition * 3 + 1);
}

static int wrong_bytes(const unsigned char* in, int bytes, int round) {
  int wrong = 0;
  for (int i = 0; i < kPartitions * bytes; ++i)
    wrong += in[i] != byte_of(1 - rank, round, i / bytes);
  return wrong;
}

static int rounds_of(int bytes) {
  unsigned char* const out = malloc((size_t)kPartitions * (size_t)bytes);
  unsigned char* const in = malloc((size_t)kPartitions * (size_t)bytes);
  MPI_Request pair[2];
  MPI_Psend_init(out, kPartitions, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_INFO_NULL,
                 &pair[0]);
  MPI_Precv_init(in, kPartitions, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_INFO_NULL,
                 &pair[1]);
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    MPI_Startall(2, pair);
    for (int p = 0; p < kPartitions; ++p) {
      memset(out + (size_t)p * (size_t)bytes, byte_of(rank, round, p), (size_t)bytes);
      MPI_Pready(p, pair[0]);
    }
    MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
    wrong += wrong_bytes(in, bytes, round);
  }
  MPI_Request_free(&pair[0]);
  MPI_Request_free(&pair[1]);
  free(out);
  free(in);
  return wrong;
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int wrong = rounds_of(kSmall) + rounds_of(kLarge);
  if (wrong == 0)
    printf("rank %d: rounds ok\n", rank);
  else
    printf("rank %d: %d wrong bytes\n", rank, wrong);
  fflush(stdout);
  MPI_Finalize();
  return wrong != 0;
}
