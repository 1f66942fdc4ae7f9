// many COUNT: two ranks make COUNT communicators and free each, after messages on it, and with
// operations that end otherwise: messages without a receive, cancelled, freed under way. The memory
// after the last one is compared with that after a tenth of them. Prints
// "rank N: K KiB resident, H bytes of the heap more".

#include <malloc.h>

#include "carried.h"

enum { kLong = 100000, kTag = 7, kTags = 5 };

static unsigned char out[kLong], in[kLong];

/// Each message is received, some before and some after the free.
static void exchange(MPI_Comm comm, int is_last, MPI_Request request[2 * kTags]) {
  const int peer = 1 - my_rank;
  static long sent[kTags], got[kTags];
  for (int i = 0; i < kTags; ++i) sent[i] = i;
  for (int i = 0; i < kTags; ++i) {
    MPI_Irecv(&got[i], 1, MPI_LONG, peer, kTag + i, comm, &request[i]);
    MPI_Isend(&sent[i], 1, MPI_LONG, peer, kTag + i, comm, &request[kTags + i]);
  }
  if (is_last) return;  // the free comes first
  MPI_Waitall(2 * kTags, request, MPI_STATUSES_IGNORE);
}

/// Messages without a receive, short and long, and receives without a message.
static void abandon(MPI_Comm comm) {
  const int peer = 1 - my_rank;
  MPI_Request request[4];
  int flag;
  for (int i = 0; i < kTags; ++i) MPI_Send(out, 1000, MPI_BYTE, peer, 100 + i, comm);
  MPI_Isend(out, kLong, MPI_BYTE, peer, 200, comm, &request[0]);
  MPI_Issend(out, 8, MPI_BYTE, peer, 201, comm, &request[1]);
  MPI_Irecv(in, kLong, MPI_BYTE, peer, 300, comm, &request[2]);
  MPI_Irecv(in, kLong, MPI_BYTE, MPI_ANY_SOURCE, 301, comm, &request[3]);
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE);
  for (int i = 0; i < 4; ++i) MPI_Cancel(&request[i]);
  MPI_Waitall(4, request, MPI_STATUSES_IGNORE);
}

static void one(int number) {
  MPI_Comm comm;
  MPI_Request request[2 * kTags];
  if (number % 4 == 1) {  // on lanes by tag
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "true");
    MPI_Info_set(info, "mpi_assert_no_any_source", "true");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
  } else {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  }
  const int is_freed_first = number % 3 == 0;
  exchange(comm, is_freed_first, request);
  if (number % 4 == 2) abandon(comm);
  MPI_Comm_free(&comm);
  if (is_freed_first) MPI_Waitall(2 * kTags, request, MPI_STATUSES_IGNORE);
}

static long resident_kib(void) {
  long all = 0, resident = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  expect(file != NULL && fscanf(file, "%ld %ld", &all, &resident) == 2, "statm", 0);
  fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const int count = atoi(argv[1]);
  long resident = 0;
  size_t heap = 0;
  for (int i = 0; i < count; ++i) {
    if (i == count / 10) {
      resident = resident_kib();
      heap = mallinfo2().uordblks;
    }
    one(i);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  printf("rank %d: %ld KiB resident, %ld bytes of the heap more\n", my_rank,
         resident_kib() - resident, (long)(mallinfo2().uordblks - heap));
  MPI_Finalize();
  return 0;
}
