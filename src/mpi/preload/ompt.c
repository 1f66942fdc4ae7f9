// Parallel regions and barriers of LLVM's OpenMP, and of Intel's, which derives from it. The
// runtime itself reports them through OMPT (OpenMP 5.0, chapter 4). The names are OMPT's, declared
// here since GCC has no header for them. Thread safety: thread-safe.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "mpi/preload/threads.h"

typedef union {
  uint64_t value;
  void* ptr;
} ompt_data_t;
typedef void ompt_callback_t(void);
typedef int ompt_set_callback_t(int event, ompt_callback_t* callback);
typedef ompt_callback_t* ompt_function_lookup_t(const char* name);
typedef struct {
  int (*initialize)(ompt_function_lookup_t* lookup, int device, ompt_data_t* tool_data);
  void (*finalize)(ompt_data_t* tool_data);
  ompt_data_t tool_data;
} ompt_start_tool_result_t;
typedef ompt_start_tool_result_t* ompt_start_tool_t(unsigned version, const char* runtime);

enum { kParallelBegin = 3, kParallelEnd = 4, kImplicitTask = 7, kSyncRegion = 23 };  // events
enum { kScopeBegin = 1, kScopeEnd = 2 };
enum {
  kBarrier = 1,  // older runtimes: an implicit barrier
  kBarrierImplicit = 2,
  kBarrierImplementation = 4,  // the runtime's own, and the barriers of GCC's programs
  kBarrierWorkshare = 8,
  kBarrierParallel = 9,
};
enum { kIsLeague = 0x40000000, kIsInitial = 1 };

// A parallel region, from its begin to its end. Each of its threads leaves it before its end.
struct Region {
  LarklaneCame came;
  const void* caller;
  uint32_t number;
  int32_t threads;
};

typedef int ompt_get_task_info_t(int level, int* flags, ompt_data_t** task, void** frame,
                                 ompt_data_t** parallel, int* thread);
static ompt_get_task_info_t* get_task_info;

static _Thread_local LarklaneCame at_barrier;  // the thread's current barrier; at_ns 0: none

static void tell(const LarklaneThreadEvent* event) {
  LarklaneThreadHook* hook = larklane_thread_hook();
  if (hook) hook(event);
}

static void begin_region(ompt_data_t* task, const void* frame, ompt_data_t* parallel,
                         unsigned threads, int flags, const void* caller) {
  (void)task, (void)frame;
  struct Region* region = flags & kIsLeague ? NULL : malloc(sizeof *region);
  if (region) {
    *region = (struct Region){larklane_come(), caller, larklane_number_region(), (int32_t)threads};
  }
  parallel->ptr = region;
}

static void end_region(ompt_data_t* parallel, ompt_data_t* task, int flags, const void* caller) {
  (void)task, (void)flags, (void)caller;
  struct Region* region = parallel->ptr;
  if (!region) return;
  tell(&(LarklaneThreadEvent){.begin_ns = region->came.at_ns,
                              .end_ns = larklane_go_on((uintptr_t)region->caller + 1),
                              .value = (uintptr_t)region->caller,
                              .region = region->number,
                              .threads = region->threads,
                              .kind = kLarklaneRegion,
                              .busy_ns = region->came.busy_ns,
                              .delayed_ns = region->came.delayed_ns});
  free(region);
}

static void begin_member(int scope, ompt_data_t* parallel, ompt_data_t* task, unsigned threads,
                         unsigned index, int flags) {
  (void)threads, (void)index;
  const struct Region* region = parallel ? parallel->ptr : NULL;
  if (scope == kScopeBegin && !(flags & kIsInitial))
    task->value = larklane_go_on(region ? (uintptr_t)region->caller : 0);
}

// True for the barrier at the end of a region. Some runtimes do not mark it, but give its address
// in the program: the region's own for the thread that began it, null for the others.
static bool ends_member(int kind, const struct Region* region, const void* caller) {
  if (kind == kBarrierParallel) return true;
  return (kind == kBarrier || kind == kBarrierImplicit) &&
         (caller == NULL || caller == region->caller);
}

// The calling thread's number in its team, from 1; 0: the runtime does not report it.
static int32_t number_in_team(void) {
  int flags, thread;
  ompt_data_t *task, *parallel;
  void* frame;
  enum { kThere = 2 };
  return get_task_info && get_task_info(0, &flags, &task, &frame, &parallel, &thread) == kThere
             ? thread + 1
             : 0;
}

// The runtime reports the end of a region's last barrier only when the next region begins. So the
// begin of that barrier ends the thread's part of the region.
static void meet(int kind, int scope, ompt_data_t* parallel, ompt_data_t* task,
                 const void* caller) {
  const bool is_barrier =
      kind <= kBarrierImplementation || kind == kBarrierWorkshare || kind == kBarrierParallel;
  const struct Region* region = parallel ? parallel->ptr : NULL;
  if (!is_barrier || !region) return;
  if (scope == kScopeEnd) {
    const uint64_t now = larklane_go_on((uintptr_t)caller);
    if (at_barrier.at_ns)
      tell(&(LarklaneThreadEvent){.begin_ns = at_barrier.at_ns,
                                  .end_ns = now,
                                  .kind = kLarklaneBarrier,
                                  .busy_ns = at_barrier.busy_ns,
                                  .delayed_ns = at_barrier.delayed_ns});
    at_barrier.at_ns = 0;
    return;
  }
  const LarklaneCame came = larklane_come();
  const bool is_last = ends_member(kind, region, caller);
  at_barrier = is_last ? (LarklaneCame){0, 0, 0} : came;
  if (is_last)
    larklane_tell_member(tell, task->value, came, (uintptr_t)region->caller, region->number,
                         number_in_team());
}

static int initialize(ompt_function_lookup_t* lookup, int device, ompt_data_t* tool_data) {
  (void)device, (void)tool_data;
  ompt_set_callback_t* set = (ompt_set_callback_t*)lookup("ompt_set_callback");
  if (!set) return 0;
  get_task_info = (ompt_get_task_info_t*)lookup("ompt_get_task_info");
  set(kParallelBegin, (ompt_callback_t*)begin_region);
  set(kParallelEnd, (ompt_callback_t*)end_region);
  set(kImplicitTask, (ompt_callback_t*)begin_member);
  set(kSyncRegion, (ompt_callback_t*)meet);
  return 1;
}

static void finalize(ompt_data_t* tool_data) { (void)tool_data; }

// The runtime asks for a tool. It accepts at most one: the program's own tool takes precedence.
__attribute__((visibility("default"))) ompt_start_tool_t ompt_start_tool;
ompt_start_tool_result_t* ompt_start_tool(unsigned version, const char* runtime) {
  static ompt_start_tool_result_t ours = {initialize, finalize, {0}};
  ompt_start_tool_t* next;
  *(void**)&next = dlsym(RTLD_NEXT, "ompt_start_tool");
  ompt_start_tool_result_t* others = next ? next(version, runtime) : NULL;
  return others ? others : &ours;
}
