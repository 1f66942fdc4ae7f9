// A buffer with a lost part: its file has been truncated, and access raises SIGBUS. The victim must
// get its signal in a thread of its own; the other side an error with a text, within seconds, and
// the use of its other requests. The caller looks for the text: MPICH 4.0 keeps none with a code,
// and it is on standard error there.
//
//   lost sender|receiver first|last [mend]    that side has the buffer; its call comes first or
//   last. mend: its handler brings the pages back (they are empty then), and the round completes
//
// Prints `victim ok` and `survivor ok`, or the failure.
#include <mpi.h>

#include "../survivor.h"
#include "kinds.h"

enum {
  PARTITIONS = 4,
  SIZE = 64 << 10,
  ALL = PARTITIONS * SIZE,
  KEPT = ALL / 2 + PAGE,
  SECONDS = 10
};

static unsigned char* buffer;
static int is_mending, file, is_lost;

// A mapping of a file; its pages behind `valid` bytes are lost.
static void lose(size_t valid) {
  is_lost = valid < ALL;
  if (ftruncate(file, (off_t)valid)) _exit(2);
}

static void on_lost(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  unsigned char* const at = (unsigned char*)info->si_addr;
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  static const char good[] = "victim ok\n", bad[] = "victim failed: signal in another place\n";
  const int is_good =
      strcmp(name, "larklane") != 0 && at >= buffer + KEPT / PAGE * PAGE && at < buffer + ALL;
  if (is_lost) (void)!write(1, is_good ? good : bad, is_good ? sizeof good - 1 : sizeof bad - 1);
  if (!is_good || !is_mending) kill(getpid(), SIGKILL);
  lose(ALL);
}

// Or end in its call.
static void let_other_go_first(void) {
  int has_gone = 0;
  for (const double began = MPI_Wtime(); !has_gone && MPI_Wtime() < began + 2;)
    MPI_Iprobe(MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &has_gone, MPI_STATUS_IGNORE);
  if (has_gone) MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static unsigned char byte_of(int round, size_t i) {
  return (unsigned char)(1 + (i * 7 + i / SIZE * 13 + (size_t)round * 31) % 255);
}

static int survive(MPI_Request* request, int is_sender) {
  double seconds = 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  if (wait_for_error(request, &seconds, text) == MPI_SUCCESS) {
    // Its bytes had left it before the other side touched the lost pages.
    printf("survivor: the round is complete\n");
    return !is_sender;
  }
  return seconds > SECONDS;
}

static int check_mended(int is_sender_victim) {
  size_t wrong = 0;
  for (size_t i = 0; i < ALL; ++i) {
    const int was_lost = is_sender_victim && i >= (KEPT + PAGE - 1) / PAGE * PAGE;
    wrong += buffer[i] != (was_lost ? 0 : byte_of(1, i));
  }
  if (wrong != 0) printf("receiver failed: %zu wrong bytes\n", wrong);
  return wrong != 0;
}

int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (argc < 3) return 2;
  const int is_sender = rank == 0, is_sender_victim = strcmp(argv[1], "sender") == 0;
  const int is_victim = is_sender_victim == is_sender;
  const int is_first = (strcmp(argv[2], "first") == 0) == is_victim;
  is_mending = argc > 3;
  file = (int)syscall(SYS_memfd_create, "lost", MFD_CLOEXEC);
  lose(ALL);
  buffer = (unsigned char*)mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_lost;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, NULL);

  MPI_Request request = init_pair(is_sender, buffer, PARTITIONS, SIZE);
  int failed = 0;
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < ALL; ++i) buffer[i] = is_sender ? byte_of(round, i) : 0xEE;
    if (round == 1 && is_victim) lose(KEPT);
    if (round == 1 && !is_first) let_other_go_first();
    MPI_Start(&request);
    if (is_sender) MPI_Pready_range(0, PARTITIONS - 1, request);
    if (round == 1 && is_first) MPI_Send(NULL, 0, MPI_BYTE, 1 - rank, 4, MPI_COMM_WORLD);
    if (round == 1 && !is_victim && !is_mending)
      failed = survive(&request, is_sender);
    else
      failed |= MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
  }
  if (!is_mending && is_victim) {
    printf("victim failed: no signal\n");
    failed = 1;
  }
  if (is_mending && !is_sender) failed |= check_mended(is_sender_victim);
  failed |= use_another();
  if (is_mending || !is_victim) printf(failed ? "survivor failed\n" : "survivor ok\n");
  fflush(stdout);
  if (!is_mending) _exit(failed);
  MPI_Request_free(&request);
  MPI_Finalize();
  return failed;
}
