// The base (MPI opened by world or session) and the board: shared memory of all processes of the
// host, by which cases signal each other without MPI.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "case.h"
#include "harness.h"

typedef struct Board {
  atomic_int pid[kRanksMax];
  atomic_int flag[kBoardFlags];
  _Atomic double time[kBoardFlags];
} Board;

static Board* board;
#if CASE_HAS_SESSIONS
static MPI_Session session = MPI_SESSION_NULL;
#endif

static void die(const char* what) {
  perror(what);
  MPI_Abort(world, 2);
}

void base_open(int* argc, char*** argv, int level, bool session_only) {
  if (session_only) {
#if CASE_HAS_SESSIONS
    MPI_Group group;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE");
    if (MPI_Session_init(info, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS) exit(2);
    MPI_Info_free(&info);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "conformance", MPI_INFO_NULL, MPI_ERRORS_RETURN, &world);
    MPI_Group_free(&group);
#else
    fputs("conformance: this MPI has no sessions\n", stderr);
    exit(77);
#endif
  } else {
    int provided = 0;
    MPI_Init_thread(argc, argv, level, &provided);
    world = MPI_COMM_WORLD;
    if (provided < level) MPI_Abort(world, 77);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  }
  MPI_Comm_rank(world, &my_rank);
  MPI_Comm_size(world, &world_size);
  my_peer = world_size == 2 ? 1 - my_rank : MPI_PROC_NULL;
  if (world_size > kRanksMax) MPI_Abort(world, 2);
}

void base_close(void) {
#if CASE_HAS_SESSIONS
  if (session != MPI_SESSION_NULL) {
    MPI_Comm_free(&world);
    MPI_Session_finalize(&session);
    return;
  }
#endif
  MPI_Finalize();
}

void board_open(void) {
  char name[200] = "";
  int fd = -1;
  if (my_rank == 0) {
    // Hosts that are namespaces have /dev/shm apart, and other folders in common.
    const char* folder = getenv("CONFORMANCE_BOARD");
    snprintf(name, sizeof(name), "%s/conformance-%ld", folder ? folder : "/dev/shm",
             (long)getpid());
    fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Board)) != 0) die("the board");
  }
  MPI_Bcast(name, (int)sizeof(name), MPI_CHAR, 0, world);
  if (my_rank != 0) fd = open(name, O_RDWR, 0600);
  if (fd < 0) die("the board");
  board = mmap(NULL, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (board == MAP_FAILED) die("mmap");
  close(fd);
  atomic_store(&board->pid[my_rank], (int)getpid());
  MPI_Barrier(world);
  if (my_rank == 0) unlink(name);
}

void board_clear(void) {
  for (int i = 0; i < kBoardFlags; ++i) atomic_store(&board->flag[i], 0);
}

void board_close(void) { munmap(board, sizeof(Board)); }

void board_hurry_others(void) {
  for (int r = 0; r < world_size; ++r) {
    if (r != my_rank) kill(atomic_load(&board->pid[r]), SIGUSR1);
  }
}

void post(int flag, int value) { atomic_store(&board->flag[flag], value); }
int peek(int flag) { return atomic_load(&board->flag[flag]); }

bool await(int flag, int value, double seconds) {
  const struct timespec nap = {.tv_nsec = 20000};
  const double end = now_s() + seconds;
  while (peek(flag) < value) {
    if (now_s() > end) return false;
    nanosleep(&nap, NULL);
  }
  return true;
}

void post_time(int flag) { atomic_store(&board->time[flag], now_s()); }
double posted_time(int flag) { return atomic_load(&board->time[flag]); }

double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void pause_s(double seconds) {
  const double end = now_s() + seconds;
  for (double left = seconds; left > 0; left = end - now_s()) {
    const struct timespec nap = {.tv_sec = (time_t)left,
                                 .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
    nanosleep(&nap, NULL);
  }
}

void compute_s(double seconds) {
  const double end = now_s() + seconds;
  while (now_s() < end) {
  }
}
