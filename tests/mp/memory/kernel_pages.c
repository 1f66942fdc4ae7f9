// Send buffers that are pages of the kernel's own: the code of the vdso, and its data (vvar), which
// no other process's system call reads (VM_PFNMAP). Prints `kernel pages ok` on rank 0.
#include <mpi.h>
#include <sys/auxv.h>

#include "kinds.h"

enum { ROUNDS = 3, PAGES_MAX = 4 };

static int rank, failures;

static void expect(int good, const char* name, int round, const char* wrong) {
  if (good || ++failures > 20) return;
  fprintf(stderr, "[%d] %s, round %d: %s\n", rank, name, round, wrong);
}

// The readable pages at the start of a mapping; others of vvar raise SIGBUS.
static size_t find_pages(const char* name, unsigned char** start) {
  FILE* const maps = fopen("/proc/self/maps", "r");
  char line[512];
  unsigned long from = 0, to = 0;
  size_t pages = 0;
  int ends[2];
  if (maps == NULL || pipe(ends)) return 0;
  while (fgets(line, sizeof line, maps) != NULL)
    if (strstr(line, name) != NULL && sscanf(line, "%lx-%lx", &from, &to) == 2) break;
  fclose(maps);
  *start = (unsigned char*)from;
  for (; pages < PAGES_MAX && from != 0 && from + pages * PAGE < to; ++pages)
    if (write(ends[1], (void*)(from + pages * PAGE), PAGE) != PAGE) break;
  close(ends[0]);
  close(ends[1]);
  return pages;
}

// The data change: bytes that are the same before and after have to arrive.
static void send_pages(const char* name) {
  unsigned char* start = NULL;
  unsigned long pages = find_pages(name, &start);
  MPI_Bcast(&pages, 1, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
  if (pages == 0) {
    if (rank == 0) printf("skipped: no readable pages in %s\n", name);
    return;
  }
  const size_t bytes = pages * PAGE;
  unsigned char* const before = (unsigned char*)malloc(bytes);
  unsigned char* const after = (unsigned char*)malloc(bytes);
  unsigned char* const there = (unsigned char*)malloc(bytes);
  MPI_Request request;
  if (rank == 0)
    MPI_Psend_init(start, (int)pages, PAGE, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &request);
  else
    MPI_Precv_init(there, (int)pages, PAGE, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &request);
  for (int round = 0; round < ROUNDS; ++round) {
    if (rank == 0) memcpy(before, start, bytes);
    memset(there, 0xEE, bytes);
    if ((rank == 0) == (round == 1)) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Start(&request);
    if (rank == 0) MPI_Pready_range(0, (int)pages - 1, request);
    if ((rank == 0) != (round == 1)) MPI_Barrier(MPI_COMM_WORLD);
    expect(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS, name, round, "Wait");
    if (rank == 0) memcpy(after, start, bytes);
    MPI_Bcast(before, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(after, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    size_t same = 0, wrong = 0;
    for (size_t i = 0; i < bytes && rank == 1; ++i) {
      same += before[i] == after[i];
      wrong += before[i] == after[i] && there[i] != after[i];
    }
    expect(wrong == 0, name, round, "wrong bytes");
    expect(rank == 0 || same > bytes / 2, name, round, "too few bytes stay the same");
  }
  MPI_Request_free(&request);
  free(before);
  free(after);
  free(there);
  if (rank == 0) printf("%s: %lu pages\n", name, pages);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  send_pages("[vdso]");
  send_pages("[vvar]");
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && failures == 0) puts("kernel pages ok");
  MPI_Finalize();
  return failures != 0;
}
