// Chooses cases, runs them, collects the verdicts of all processes and prints one line for each
// case.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "case.h"
#include "harness.h"

enum { kTextBytes = 600, kExitHang = 3, kExitFailed = 1 };
static const double kDeadlineSeconds = 20;

extern const Case* const __start_cases[];
extern const Case* const __stop_cases[];

void* null_pointer = NULL;
int my_rank, my_peer, world_size;
MPI_Comm world = MPI_COMM_NULL, comm = MPI_COMM_NULL;

static struct {
  const Case* now;
  const char* step;
  jmp_buf back;
  pthread_t main_thread;
  pthread_mutex_t lock;
  atomic_int verdict;  // 0 ok, 1 skipped, 2 failed
  char text[kTextBytes];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
  int level;
  double patience;  // a factor on all deadlines
  bool sessions;
} options = {.level = -1, .patience = 1};

// Verdicts ---------------------------------------------------------------------------------------

void case_fail(const char* kind, const char* file, int line, const char* format, ...) {
  pthread_mutex_lock(&state.lock);
  if (atomic_load(&state.verdict) != 2) {
    const char* slash = strrchr(file, '/');
    int used = snprintf(state.text, sizeof(state.text), "%s: ", kind);
    va_list arguments;
    va_start(arguments, format);
    used += vsnprintf(state.text + used, sizeof(state.text) - (size_t)used, format, arguments);
    va_end(arguments);
    if (used > kTextBytes - 40) used = kTextBytes - 40;
    snprintf(state.text + used, sizeof(state.text) - (size_t)used, " (%s:%d)",
             slash ? slash + 1 : file, line);
    atomic_store(&state.verdict, 2);
  }
  pthread_mutex_unlock(&state.lock);
}

void case_skip(const char* why) {
  snprintf(state.text, sizeof(state.text), "%s", why);
  atomic_store(&state.verdict, 1);
}

bool case_failed(void) { return atomic_load(&state.verdict) == 2; }
void step(const char* what) { state.step = what; }

void case_abandon(void) {
  alarm(2);  // this process has the reason and must report it, should the others be stuck
  board_hurry_others();
  if (!pthread_equal(pthread_self(), state.main_thread)) pthread_exit(NULL);
  longjmp(state.back, 1);
}

void case_must(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  case_fail("error", file, line, "%.60s failed: %.400s", call, text);
  case_abandon();
}

void case_expect_error(int code, const char* call, const int* classes, const char* file, int line) {
  if (code == MPI_SUCCESS) {
    case_fail("error", file, line, "%.90s: an error was expected, it returned MPI_SUCCESS", call);
    return;
  }
  int class = 0;
  MPI_Error_class(code, &class);
  if (classes[0] == MPI_ERR_LASTCODE) return;
  for (const int* c = classes; *c != MPI_SUCCESS; ++c) {
    if (*c == class) return;
  }
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(class, text, &length);
  case_fail("error", file, line, "%.90s: another error class was expected, it returned %.60s", call,
            text);
}

// The watchdog: a case that hangs ends the process, the runner starts the cases after it again. ---

static void write_all(const char* text) {
  size_t left = strlen(text);
  while (left > 0) {
    ssize_t n = write(STDOUT_FILENO, text, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text += n;
    left -= (size_t)n;
  }
}

static void on_deadline(int signal_number) {
  (void)signal_number;
  char line[2 * kTextBytes];
  const char* name = state.now ? state.now->name : "FINALIZE";
  if (atomic_load(&state.verdict) == 2) {
    snprintf(line, sizeof(line), "not ok %s: rank %d: %s\n", name, my_rank, state.text);
  } else {
    snprintf(line, sizeof(line), "not ok %s: rank %d: hang: deadline passed while %s\n", name,
             my_rank, state.step ? state.step : "running");
  }
  write_all(line);
  snprintf(line, sizeof(line), "gave up %s\n", name);
  write_all(line);
  const struct timespec others = {.tv_nsec = 300000000};  // so that all processes get to write
  nanosleep(&others, NULL);
  _exit(kExitHang);
}

static void on_hurry(int signal_number) {
  (void)signal_number;
  alarm(2);
}

static void set_deadline(double seconds) {
  seconds *= options.patience;
  struct itimerval timer = {0};
  timer.it_value.tv_sec = (time_t)seconds;
  timer.it_value.tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6);
  setitimer(ITIMER_REAL, &timer, NULL);
}

static void watch(void) {
  struct sigaction action = {.sa_handler = on_deadline, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  action.sa_handler = on_hurry;
  sigaction(SIGUSR1, &action, NULL);
}

// Running ----------------------------------------------------------------------------------------

/// The verdicts of all processes, printed by rank 0.
static bool report(const Case* now) {
  struct Verdict {
    int verdict;
    char text[kTextBytes];
  } mine = {.verdict = atomic_load(&state.verdict)}, all[kRanksMax];
  memcpy(mine.text, state.text, sizeof(mine.text));
  PMPI_Gather(&mine, (int)sizeof(mine), MPI_BYTE, all, (int)sizeof(mine), MPI_BYTE, 0, world);
  bool failed = false;
  if (my_rank == 0) {
    int worst = 0;
    for (int r = 1; r < world_size; ++r) {
      if (all[r].verdict > all[worst].verdict) worst = r;
    }
    failed = all[worst].verdict == 2;
    if (failed) {
      printf("not ok %s: rank %d: %s\n", now->name, worst, all[worst].text);
    } else if (all[worst].verdict == 1) {
      printf("skip %s: %s\n", now->name, all[worst].text);
    } else {
      printf("ok %s\n", now->name);
    }
    fflush(stdout);
  }
  return failed;
}

static bool run_case(const Case* now) {
  state.now = now;
  state.step = NULL;
  state.text[0] = '\0';
  atomic_store(&state.verdict, 0);
  if (my_rank == 0) board_clear();
  set_deadline(now->deadline_s > 0 ? now->deadline_s : kDeadlineSeconds);
  MPI_Comm_dup(world, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Barrier(world);
  if (setjmp(state.back) == 0) now->run();
  step("collecting the verdicts");
  bool failed = report(now);
  MPI_Comm_free(&comm);
  set_deadline(0);
  state.now = NULL;
  return failed;
}

static int level_of(const char* name) {
  static const char* const kNames[] = {"single", "funneled", "serialized", "multiple"};
  static const int kLevels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                                MPI_THREAD_MULTIPLE};
  for (int i = 0; i < 4; ++i) {
    if (strcmp(name, kNames[i]) == 0) return kLevels[i];
  }
  fprintf(stderr, "conformance: --level %s: single, funneled, serialized or multiple\n", name);
  exit(2);
}

static int list(void) {
  for (const Case* const* c = __start_cases; c != __stop_cases; ++c) {
    const char* level = (*c)->level == MPI_THREAD_MULTIPLE     ? "multiple"
                        : (*c)->level == MPI_THREAD_SERIALIZED ? "serialized"
                        : (*c)->level == MPI_THREAD_FUNNELED   ? "funneled"
                                                               : "single";
    const char* end = strchr((*c)->name, '_');
    printf("%s %d %s %.*s%s%s%s\n", (*c)->name, (*c)->ranks, level, (int)(end - (*c)->name),
           (*c)->name, (*c)->traits & kEveryLevel ? " every-level" : "",
           (*c)->traits & kSessions ? " sessions" : "", (*c)->traits & kBig ? " big" : "");
  }
  return 0;
}

static const Case* find(const char* name) {
  for (const Case* const* c = __start_cases; c != __stop_cases; ++c) {
    if (strcmp((*c)->name, name) == 0) return *c;
  }
  fprintf(stderr, "conformance: no case named %s\n", name);
  exit(2);
}

static int run_chosen(char** names, int count) {
  int failures = 0;
  if (count == 0) {
    for (const Case* const* c = __start_cases; c != __stop_cases; ++c) {
      bool fits = (*c)->ranks == world_size && !((*c)->traits & kBig) &&
                  (*c)->level <= options.level && (!options.sessions || (*c)->traits & kSessions);
      if (fits && run_case(*c)) ++failures;
    }
  }
  for (int i = 0; i < count; ++i) {
    const Case* chosen = find(names[i]);
    if (chosen->ranks == world_size && chosen->level <= options.level) {
      if (run_case(chosen)) ++failures;
    } else if (my_rank == 0) {
      printf("skip %s: needs %d processes and a higher thread level\n", chosen->name,
             chosen->ranks);
      fflush(stdout);
    }
  }
  return failures;
}

int main(int argc, char** argv) {
  static const char kUsage[] =
      "usage: conformance --list | [--level L] [--deadline S] [--sessions] (--all | --run "
      "NAME...)\n";
  bool chosen = false;
  int i = 1;
  for (; i < argc && !chosen; ++i) {
    if (strcmp(argv[i], "--list") == 0) return list();
    if (strcmp(argv[i], "--child") == 0 && i + 1 < argc) return child_main(argv[i + 1]);
    if (strcmp(argv[i], "--level") == 0 && i + 1 < argc) {
      options.level = level_of(argv[++i]);
    } else if (strcmp(argv[i], "--deadline") == 0 && i + 1 < argc) {
      options.patience = atof(argv[++i]) / kDeadlineSeconds;
    } else if (strcmp(argv[i], "--sessions") == 0) {
      options.sessions = true;
    } else if (strcmp(argv[i], "--run") == 0 || strcmp(argv[i], "--all") == 0) {
      chosen = true;
    } else {
      break;
    }
  }
  if (!chosen) {
    fputs(kUsage, stderr);
    return 2;
  }
  state.main_thread = pthread_self();
  if (options.level < 0) options.level = MPI_THREAD_MULTIPLE;
  watch();
  state.step = "initialising MPI";
  set_deadline(60);
  base_open(&argc, &argv, options.level, options.sessions);
  board_open();
  int failures = run_chosen(argv + i, argc - i);
  step("finalizing MPI");
  atomic_store(&state.verdict, 0);
  set_deadline(kDeadlineSeconds);
  board_close();
  base_close();
  return failures > 0 ? kExitFailed : 0;
}
