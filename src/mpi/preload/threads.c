// When the threads of a profiled program finish: wrappers of what GCC's OpenMP and pthreads call
// parallel regions, barriers and joins. They do what the wrapped function does, and tell the hook,
// once there is one. Thread safety: thread-safe.

#define _GNU_SOURCE
#include "mpi/preload/threads.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static _Atomic(LarklaneThreadHook*) hook;

void larklane_watch_threads(LarklaneThreadHook* wanted) {
  // release: what the hook needs is there; pairs with larklane_thread_hook()
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

static _Thread_local uint64_t busy_before_ns;  // processor time of the thread when it last went on

LarklaneCame larklane_come(void) {
  const uint64_t busy_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - busy_before_ns;
  return (LarklaneCame){clock_ns(CLOCK_MONOTONIC), busy_ns ? busy_ns : 1};
}

uint64_t larklane_go_on(void) {
  busy_before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
  return clock_ns(CLOCK_MONOTONIC);
}

// The wrapped function: after us in the global scope, or in a libgomp that was opened locally.
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

// The function `name`, looked up once; threads that come at the same time find the same.
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

// LLVM's runtime has these functions, too, for programs of GCC, and tells by itself (ompt.c).
static bool is_gomp_llvms(void) {
  Dl_info gomp, llvm;
  void* fork = dlsym(RTLD_DEFAULT, "__kmpc_fork_call");
  return fork && dladdr(fork, &llvm) && dladdr(real("GOMP_parallel"), &gomp) &&
         gomp.dli_fbase == llvm.dli_fbase;
}

// Is what GCC's OpenMP does to be told?
static bool is_gomp_told(void) {
  static _Atomic(int) answer;  // 0: not known yet
  enum { kYes = 1, kNo = 2 };
  if (!larklane_thread_hook()) return false;
  int known = atomic_load_explicit(&answer, memory_order_relaxed);  // relaxed: all find the same
  if (!known) {
    known = is_gomp_llvms() ? kNo : kYes;
    atomic_store_explicit(&answer, known, memory_order_relaxed);
  }
  return known == kYes;
}

typedef void Body(void*);

// A parallel region on its way through libgomp.
struct Region {
  Body* body;
  void* data;
  uint32_t number;
};

static void run_member(void* region_p) {
  const struct Region* region = region_p;
  const uint64_t begin_ns = larklane_go_on();
  region->body(region->data);
  const LarklaneCame came = larklane_come();
  LarklaneThreadHook* tell = larklane_thread_hook();
  const LarklaneThreadEvent event = {.begin_ns = begin_ns,
                                     .end_ns = came.at_ns,
                                     .value = (uintptr_t)region->body,
                                     .region = region->number,
                                     .kind = kLarklaneMember,
                                     .busy_ns = came.busy_ns};
  if (tell) tell(&event);
}

uint32_t larklane_number_region(void) {
  static _Atomic(uint32_t) regions;
  return atomic_fetch_add_explicit(&regions, 1, memory_order_relaxed) + 1;  // relaxed: a counter
}

static void tell_region(const struct Region* region, LarklaneCame came, unsigned threads) {
  const LarklaneThreadEvent event = {.begin_ns = came.at_ns,
                                     .end_ns = larklane_go_on(),
                                     .value = (uintptr_t)region->body,
                                     .region = region->number,
                                     .thread_count = (int32_t)threads,
                                     .kind = kLarklaneRegion,
                                     .busy_ns = came.busy_ns};
  LarklaneThreadHook* tell = larklane_thread_hook();
  if (tell) tell(&event);
}

// One wrapper for each way to begin a region: what follows (body, data, threads) differs.
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

static void tell_wait(uint8_t kind, LarklaneCame came, uint64_t value) {
  LarklaneThreadHook* tell = larklane_thread_hook();
  const LarklaneThreadEvent event = {.begin_ns = came.at_ns,
                                     .end_ns = larklane_go_on(),
                                     .value = value,
                                     .kind = kind,
                                     .busy_ns = came.busy_ns};
  if (tell) tell(&event);
}

// Where the threads of a region wait for each other.
#define BARRIER(name)                                                                  \
  EXPORT void name(void);                                                              \
  void name(void) {                                                                    \
    typedef void Function(void);                                                       \
    REAL(Function, name);                                                              \
    const LarklaneCame came = is_gomp_told() ? larklane_come() : (LarklaneCame){0, 0}; \
    call();                                                                            \
    if (came.at_ns) tell_wait(kLarklaneBarrier, came, 0);                              \
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
                                     .busy_ns = came.busy_ns};
  if (tell) tell(&event);
}

static void* run_thread(void* thread_p) {
  struct Thread thread = *(struct Thread*)thread_p;
  free(thread_p);
  void* result;
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
  const LarklaneCame came = larklane_thread_hook() ? larklane_come() : (LarklaneCame){0, 0};
  const int error = call(thread, result);
  if (came.at_ns && !error) tell_wait(kLarklaneJoin, came, (uintptr_t)thread);
  return error;
}

EXPORT int pthread_barrier_wait(pthread_barrier_t* barrier) {
  typedef int Function(pthread_barrier_t*);
  REAL(Function, pthread_barrier_wait);
  const LarklaneCame came = larklane_thread_hook() ? larklane_come() : (LarklaneCame){0, 0};
  const int result = call(barrier);
  if (came.at_ns) tell_wait(kLarklaneBarrier, came, (uintptr_t)barrier);
  return result;
}
