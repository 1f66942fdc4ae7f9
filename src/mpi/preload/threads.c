// Events of a profiled program's threads: wrappers of parallel regions, barriers and joins of GCC's
// OpenMP and pthreads. Each calls the wrapped function, and the hook, once one is set. Thread
// safety: thread-safe.

#define _GNU_SOURCE
#include "mpi/preload/threads.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static _Atomic(LarklaneThreadHook*) hook;

void larklane_watch_threads(LarklaneThreadHook* wanted) {
  // release: publishes the hook's data; pairs with larklane_thread_hook()
  atomic_store_explicit(&hook, wanted, memory_order_release);
}

LarklaneThreadHook* larklane_thread_hook(void) {
  return atomic_load_explicit(&hook, memory_order_acquire);  // pairs with larklane_watch_threads
}

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// ---- processor time of a thread ----

// A query of the kernel takes about 2 us, so it serves long computations only, at their begin and
// end. After kShortInARow short computations in a row from one place of the program, the thread
// stops to query there, until one takes long again. Each place gets at most kAsksMax queries, which
// is enough for the steps that a report replays.
enum { kLongNs = 200000, kShortInARow = 8, kAsksMax = 256, kPlaceBits = 8, kNeighbours = 4 };

typedef struct {
  uint64_t busy_ns, delayed_ns;
} Usage;

typedef struct {
  uintptr_t address;
  unsigned short_in_a_row, asks;
} Place;

static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
  uint64_t went_ns;
  Usage before;                   // when it went on; busy_ns 0: not queried, or not known
  Place* from;                    // where it went on; null: nowhere yet
  Place places[1 << kPlaceBits];  // by hash, or up to kNeighbours - 1 further
  int schedstat;                  // 0: not opened yet; -1: missing; else the descriptor + 1
} self;

static pthread_key_t closed_at_end;
static bool has_key;

static void close_schedstat(void* descriptor_p) {
  close((int)(intptr_t)descriptor_p - 1);
  self.schedstat = -1;
}

static void make_key(void) { has_key = pthread_key_create(&closed_at_end, close_schedstat) == 0; }

// System calls by number: libc's functions are cancellation points, but the wrapped ones are not.
static void open_schedstat(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_key);
  const long file =
      has_key ? syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)
              : -1;
  self.schedstat = file < 0 ? -1 : (int)file + 1;
  if (file >= 0) pthread_setspecific(closed_at_end, (void*)(intptr_t)self.schedstat);
}

// The usage of the calling thread, since its begin. busy_ns 0: this kernel does not report it.
static Usage usage(void) {
  char text[80];
  if (self.schedstat == 0) open_schedstat();
  const long length = self.schedstat < 0 ? 0
                                         : syscall(SYS_pread64, self.schedstat - 1, text,
                                                   sizeof text - 1, (off_t)0);
  if (length <= 0) return (Usage){0, 0};
  text[length] = '\0';  // "processor time" (as of the last tick) "waited for a core" "times"
  char* rest;
  strtoull(text, &rest, 10);
  const uint64_t delayed_ns = strtoull(rest, NULL, 10);
  return (Usage){clock_ns(CLOCK_THREAD_CPUTIME_ID), delayed_ns};
}

static Place* place_of(uintptr_t address) {
  if (!address) address = 1;  // LLVM's runtime gives no address
  const unsigned hash = (unsigned)(address * 0x9E3779B97F4A7C15U >> (64 - kPlaceBits));
  for (unsigned i = 0; i < kNeighbours; ++i) {
    Place* place = &self.places[(hash + i) % (1 << kPlaceBits)];
    if (!place->address) *place = (Place){.address = address};
    if (place->address == address) return place;
  }
  self.places[hash] = (Place){.address = address};
  return &self.places[hash];
}

LarklaneCame larklane_come(void) {
  LarklaneCame came = {clock_ns(CLOCK_MONOTONIC), 0, 0};
  const uint64_t took_ns = came.at_ns - self.went_ns;
  const bool is_short = took_ns < kLongNs;
  if (self.from) self.from->short_in_a_row = is_short ? self.from->short_in_a_row + 1 : 0;
  if (is_short || !self.before.busy_ns) return came;
  const Usage now = usage();
  if (!now.busy_ns) return came;
  came.busy_ns = now.busy_ns - self.before.busy_ns;
  // At most the missing time: the thread may lose its core between the kernel's answer and the
  // clock's.
  const uint64_t missing_ns = took_ns > came.busy_ns ? took_ns - came.busy_ns : 0;
  const uint64_t waited_ns = now.delayed_ns - self.before.delayed_ns;
  const uint64_t delayed_ns = waited_ns < missing_ns ? waited_ns : missing_ns;
  came.delayed_ns = delayed_ns < INT32_MAX ? (int32_t)delayed_ns : INT32_MAX;
  return came;
}

uint64_t larklane_go_on(uintptr_t address) {
  Place* place = self.from = place_of(address);
  const bool asks = place->short_in_a_row < kShortInARow && place->asks < kAsksMax;
  place->asks += asks;
  self.before = asks ? usage() : (Usage){0, 0};
  return self.went_ns = clock_ns(CLOCK_MONOTONIC);
}

// The wrapped function: after this object in the global scope, or in a libgomp that was opened
// locally.
static void* real(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (!found) {
    void* gomp = dlopen("libgomp.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (gomp) found = dlsym(gomp, name);
  }
  if (!found) {
    dprintf(STDERR_FILENO, "larklane: the program calls %s, which no loaded library defines\n",
            name);
    abort();
  }
  return found;
}

// The function `name`, looked up once; concurrent threads find the same function.
#define REAL(type, name)                                                     \
  static _Atomic(void*) found_##name;                                        \
  /* relaxed: the address of a function */                                   \
  void* address = atomic_load_explicit(&found_##name, memory_order_relaxed); \
  if (!address) {                                                            \
    address = real(#name);                                                   \
    atomic_store_explicit(&found_##name, address, memory_order_relaxed);     \
  }                                                                          \
  type* const call = *(type**)(void*)&address

// ---- GCC's OpenMP ----

// True if LLVM's runtime provides these functions, for programs of GCC: it reports by ompt.c.
static bool is_gomp_llvms(void) {
  Dl_info gomp, llvm;
  void* fork = dlsym(RTLD_DEFAULT, "__kmpc_fork_call");
  return fork && dladdr(fork, &llvm) && dladdr(real("GOMP_parallel"), &gomp) &&
         gomp.dli_fbase == llvm.dli_fbase;
}

// True if these wrappers report GCC's OpenMP.
static bool is_gomp_told(void) {
  static _Atomic(int) answer;  // 0: not known yet
  enum { kYes = 1, kNo = 2 };
  if (!larklane_thread_hook()) return false;
  int known = atomic_load_explicit(&answer, memory_order_relaxed);  // relaxed: all threads agree
  if (!known) {
    known = is_gomp_llvms() ? kNo : kYes;
    atomic_store_explicit(&answer, known, memory_order_relaxed);
  }
  return known == kYes;
}

typedef void Body(void*);

// A parallel region that a wrapper passes through libgomp.
struct Region {
  Body* body;
  void* data;
  uint32_t number;
};

static int level_of_team(void) {
  typedef int Function(void);
  REAL(Function, omp_get_level);
  return call();
}

static int size_of_team(int level) {
  typedef int Function(int);
  REAL(Function, omp_get_team_size);
  return call(level);
}

// The calling thread's number, from 1, in its innermost team of several threads.
static int32_t number_in_team(void) {
  typedef int Function(int);
  REAL(Function, omp_get_ancestor_thread_num);
  int level = level_of_team();
  while (level > 1 && size_of_team(level) == 1) --level;
  return call(level) + 1;
}

static void run_member(void* region_p) {
  const struct Region* region = region_p;
  const uint64_t begin_ns = larklane_go_on((uintptr_t)region->body);
  region->body(region->data);
  const LarklaneCame came = larklane_come();
  LarklaneThreadHook* tell = larklane_thread_hook();
  if (tell)
    larklane_tell_member(tell, begin_ns, came, (uintptr_t)region->body, region->number,
                         number_in_team());
}

uint32_t larklane_number_region(void) {
  static _Atomic(uint32_t) regions;
  return atomic_fetch_add_explicit(&regions, 1, memory_order_relaxed) + 1;  // relaxed: a counter
}

static void tell_region(const struct Region* region, LarklaneCame came, unsigned threads) {
  const LarklaneThreadEvent event = {.begin_ns = came.at_ns,
                                     .end_ns = larklane_go_on((uintptr_t)region->body + 1),
                                     .value = (uintptr_t)region->body,
                                     .region = region->number,
                                     .threads = (int32_t)threads,
                                     .kind = kLarklaneRegion,
                                     .busy_ns = came.busy_ns,
                                     .delayed_ns = came.delayed_ns};
  LarklaneThreadHook* tell = larklane_thread_hook();
  if (tell) tell(&event);
}

// A wrapper for each function that begins a region; the parameters after (body, data, threads)
// differ.
#define REGION(name, parameters, ...)                              \
  EXPORT void name parameters;                                     \
  void name parameters {                                           \
    typedef void Function parameters;                              \
    REAL(Function, name);                                          \
    if (!is_gomp_told()) {                                         \
      call(body, data, __VA_ARGS__);                               \
      return;                                                      \
    }                                                              \
    struct Region region = {body, data, larklane_number_region()}; \
    const LarklaneCame came = larklane_come();                     \
    call(run_member, &region, __VA_ARGS__);                        \
    tell_region(&region, came, threads);                           \
  }

REGION(GOMP_parallel, (Body * body, void* data, unsigned threads, unsigned flags), threads, flags)
REGION(GOMP_parallel_sections,
       (Body * body, void* data, unsigned threads, unsigned count, unsigned flags), threads, count,
       flags)

#define LOOP(name)                                                                                \
  REGION(name,                                                                                    \
         (Body * body, void* data, unsigned threads, long start, long end, long step, long chunk, \
          unsigned flags),                                                                        \
         threads, start, end, step, chunk, flags)
#define LOOP_WITHOUT_CHUNK(name)                                                      \
  REGION(name,                                                                        \
         (Body * body, void* data, unsigned threads, long start, long end, long step, \
          unsigned flags),                                                            \
         threads, start, end, step, flags)

LOOP(GOMP_parallel_loop_static)
LOOP(GOMP_parallel_loop_dynamic)
LOOP(GOMP_parallel_loop_guided)
LOOP(GOMP_parallel_loop_nonmonotonic_dynamic)
LOOP(GOMP_parallel_loop_nonmonotonic_guided)
LOOP_WITHOUT_CHUNK(GOMP_parallel_loop_runtime)
LOOP_WITHOUT_CHUNK(GOMP_parallel_loop_nonmonotonic_runtime)
LOOP_WITHOUT_CHUNK(GOMP_parallel_loop_maybe_nonmonotonic_runtime)

static void tell_wait(uint8_t kind, LarklaneCame came, uint64_t value, const void* caller) {
  LarklaneThreadHook* tell = larklane_thread_hook();
  const LarklaneThreadEvent event = {.begin_ns = came.at_ns,
                                     .end_ns = larklane_go_on((uintptr_t)caller),
                                     .value = value,
                                     .kind = kind,
                                     .busy_ns = came.busy_ns,
                                     .delayed_ns = came.delayed_ns};
  if (tell) tell(&event);
}

// Wrappers of the functions where the threads of a region wait for each other.
#define BARRIER(name)                                                                     \
  EXPORT void name(void);                                                                 \
  void name(void) {                                                                       \
    typedef void Function(void);                                                          \
    REAL(Function, name);                                                                 \
    const LarklaneCame came = is_gomp_told() ? larklane_come() : (LarklaneCame){0, 0, 0}; \
    call();                                                                               \
    if (came.at_ns) tell_wait(kLarklaneBarrier, came, 0, __builtin_return_address(0));    \
  }

BARRIER(GOMP_barrier)
BARRIER(GOMP_loop_end)
BARRIER(GOMP_sections_end)

// ---- pthreads ----

struct Thread {
  void* (*body)(void*);
  void* data;
  uint64_t created_ns;
};

static void tell_end(void* created_ns_p) {
  const LarklaneCame came = larklane_come();
  LarklaneThreadHook* tell = larklane_thread_hook();
  const LarklaneThreadEvent event = {.begin_ns = *(const uint64_t*)created_ns_p,
                                     .end_ns = came.at_ns,
                                     .value = (uintptr_t)pthread_self(),
                                     .kind = kLarklaneThread,
                                     .busy_ns = came.busy_ns,
                                     .delayed_ns = came.delayed_ns};
  if (tell) tell(&event);
}

static void* run_thread(void* thread_p) {
  struct Thread thread = *(struct Thread*)thread_p;
  free(thread_p);
  void* result;
  larklane_go_on((uintptr_t)thread.body);
  pthread_cleanup_push(tell_end,
                       &thread.created_ns);  // also if it is cancelled or calls pthread_exit
  result = thread.body(thread.data);
  pthread_cleanup_pop(1);
  return result;
}

EXPORT int pthread_create(pthread_t* restrict thread, const pthread_attr_t* restrict attributes,
                          void* (*body)(void*), void* restrict data) {
  typedef int Function(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  REAL(Function, pthread_create);
  struct Thread* wrapped = larklane_thread_hook() ? malloc(sizeof *wrapped) : NULL;
  if (!wrapped) return call(thread, attributes, body, data);
  *wrapped = (struct Thread){body, data, clock_ns(CLOCK_MONOTONIC)};
  const int error = call(thread, attributes, run_thread, wrapped);
  if (error) free(wrapped);
  return error;
}

EXPORT int pthread_join(pthread_t thread, void** result) {
  typedef int Function(pthread_t, void**);
  REAL(Function, pthread_join);
  const LarklaneCame came = larklane_thread_hook() ? larklane_come() : (LarklaneCame){0, 0, 0};
  const int error = call(thread, result);
  if (came.at_ns && !error)
    tell_wait(kLarklaneJoin, came, (uintptr_t)thread, __builtin_return_address(0));
  return error;
}

EXPORT int pthread_barrier_wait(pthread_barrier_t* barrier) {
  typedef int Function(pthread_barrier_t*);
  REAL(Function, pthread_barrier_wait);
  const LarklaneCame came = larklane_thread_hook() ? larklane_come() : (LarklaneCame){0, 0, 0};
  const int result = call(barrier);
  if (came.at_ns)
    tell_wait(kLarklaneBarrier, came, (uintptr_t)barrier, __builtin_return_address(0));
  return result;
}
