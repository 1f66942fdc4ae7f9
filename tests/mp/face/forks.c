// forks SELF: two ranks fork, execute and call programs while messages are in flight. SELF: this
// program; a child executes it as an MPI program of one process ("forks alone"). Prints "rank N
// ok".

#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

#include "carried.h"

extern char** environ;

enum { kLong = 3 << 20, kShort = 2000, kTag = 3, kPerThread = 3000 };

static unsigned char out[2][kLong], in[2][kLong];
static MPI_Request request[4];
static unsigned round_;

/// A short and a long message in both directions are open between begin() and end().
static void begin(void) {
  const int peer = 1 - my_rank;
  ++round_;
  fill(out[0], kShort, round_ + (unsigned)my_rank);
  fill(out[1], kLong, round_ + (unsigned)my_rank);
  MPI_Isend(out[0], kShort, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &request[0]);
  MPI_Isend(out[1], kLong, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &request[1]);
}
static void end(void) {
  const int peer = 1 - my_rank;
  MPI_Irecv(in[0], kShort, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &request[2]);
  MPI_Irecv(in[1], kLong, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &request[3]);
  MPI_Waitall(4, request, MPI_STATUSES_IGNORE);
  const unsigned seed = round_ + (unsigned)peer;
  expect(wrong_bytes(in[0], kShort, seed) + wrong_bytes(in[1], kLong, seed) == 0, "wrong bytes",
         (long)round_);
}

static void expect_status(pid_t child, int status, const char* what) {
  int got = -1;
  expect(child > 0 && waitpid(child, &got, 0) == child, what, child);
  expect(WIFEXITED(got) && WEXITSTATUS(got) == status, what, got);
}

/// The environment of a program that no launcher has started.
static char** without_launcher(void) {
  static const char* const kOf[] = {"PMI",   "OMPI_", "PRTE",      "HYD",     "MPIR_CVAR_CH4",
                                    "MPICH", "OPAL_", "MPI_LOCAL", "MPIEXEC_"};
  static char* kept[4096];
  int count = 0;
  for (char** one = environ; *one != NULL && count < 4095; ++one) {
    int is_of = 0;
    for (size_t i = 0; i < sizeof kOf / sizeof kOf[0]; ++i)
      is_of |= strncmp(*one, kOf[i], strlen(kOf[i])) == 0;
    if (!is_of || strncmp(*one, "OMPI_ALLOW", 10) == 0) kept[count++] = *one;
  }
  kept[count] = NULL;
  return kept;
}

static void children(const char* self) {
  begin();
  pid_t child = fork();
  if (child == 0) _exit(7);
  expect_status(child, 7, "a child that calls _exit()");
  child = fork();
  if (child == 0) exit(8);  // handlers of exit() run
  expect_status(child, 8, "a child that calls exit()");
  child = fork();
  if (child == 0) {
    execl("/bin/true", "true", (char*)NULL);
    _exit(1);
  }
  expect_status(child, 0, "a child that executes a program");
  end();
  begin();
  child = fork();
  if (child == 0) {
    char* const words[] = {(char*)self, "alone", NULL};
    execve(self, words, without_launcher());
    _exit(1);
  }
  expect_status(child, 0, "a child that executes an MPI program");
  char* const words[] = {"true", NULL};
  expect(posix_spawn(&child, "/bin/true", NULL, NULL, words, environ) == 0, "posix_spawn", child);
  expect_status(child, 0, "a spawned child");
  end();
  begin();
  char line[32] = "";
  FILE* const pipe = popen("echo spoken", "r");
  expect(pipe != NULL && fgets(line, sizeof line, pipe) != NULL, "popen", 0);
  expect(strcmp(line, "spoken\n") == 0 && pclose(pipe) == 0, "the line of popen", 0);
  expect(system("exit 5") == 5 << 8, "system", 0);
  end();
}

/// A child that lives on, with copies of all descriptors, keeps no rank from ending.
static void leave_a_child(void) {
  if (fork() != 0) return;
  fclose(stdout);
  fclose(stderr);
  sleep(3);
  _exit(0);
}

static void* talk(void* argument) {
  (void)argument;
  for (int i = 0; i < kPerThread; ++i)
    swap_with(1 - my_rank, i % 100 == 0 ? 100000 : 64, kTag + 1, (unsigned)i, MPI_COMM_WORLD);
  return NULL;
}

/// A thread talks while the other one forks.
static void forks_beside_messages(void) {
  pthread_t thread;
  expect(pthread_create(&thread, NULL, talk, NULL) == 0, "pthread_create", 0);
  for (int i = 0; i < 60; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(6);
    expect_status(child, 6, "a child beside messages");
  }
  pthread_join(thread, NULL);
}

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
  if (strcmp(argv[1], "alone") == 0) {
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    expect(rank_count == 1, "ranks of a program that was executed", rank_count);
    swap_with(0, 100000, kTag, 1, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
  }
  children(argv[1]);
  if (level == MPI_THREAD_MULTIPLE) forks_beside_messages();
  leave_a_child();
  begin();
  end();
  MPI_Finalize();
  printf("rank %d ok\n", my_rank);
  return 0;
}
