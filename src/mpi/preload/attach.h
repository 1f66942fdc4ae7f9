#pragma once
// What the preload stub and a family's library agree on. C, because the stub depends on libc alone.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// What a thread has done outside MPI; kinds as in profile/format.hpp.
enum {
  kLarklaneRegion = 10,   ///< began a parallel region and came out of it, as its first thread
  kLarklaneMember = 11,   ///< its part of a parallel region
  kLarklaneBarrier = 12,  ///< came to a barrier and went on
  kLarklaneThread = 13,   ///< its life, from pthread_create
  kLarklaneJoin = 14,     ///< waited for another one
};
typedef struct LarklaneThreadEvent {
  uint64_t begin_ns, end_ns;
  uint64_t value;  ///< what is called, the barrier, or the thread
  uint32_t region;
  /// A region's: asked for, 0: all. A member's: its number in its team, from 1; 0: not known.
  int32_t threads;
  uint8_t kind;
  uint64_t busy_ns;    ///< processor time from where the thread last went on to here; 0: not told
  int32_t delayed_ns;  ///< for how long it waited for a core on the way; INT32_MAX: or longer
} LarklaneThreadEvent;
typedef void LarklaneThreadHook(const LarklaneThreadEvent* event);

/// What the stub does for a family's library.
typedef struct LarklaneStub {
  /// The next definition of a name after the stub; null if there is none.
  void* (*find_next)(const char* name);
  /// From now on the intercepted names lead to these functions, in the order of calls.def, MPI_X
  /// before PMPI_X; null: there is none. May be called again at any time, by one thread at a time.
  void (*set_functions)(void* const* functions);
  /// The stub of `larklane profile`: its functions are those of calls.def, then those of
  /// traffic.def. It tells the hook what threads do. Null: the plain stub.
  void (*watch_threads)(LarklaneThreadHook* hook);
  /// Partitioned communication is left to the MPI. Only the profiling stub comes here then.
  int is_native;
  /// `hook` is called before what this process tells its launcher goes out (PMIx_Commit).
  void (*before_commit)(void (*hook)(void));
} LarklaneStub;

/// The one entry point of a family's library, exported as larklane_mpi_attach: fills its tables of
/// next functions and handles, then sets the stub's functions. Calls after the first change
/// nothing.
/// @param version  the stub's; must be the library's own
/// @return  null, or what is wrong in words
/// @threads thread-safe
typedef const char* LarklaneAttach(const char* version, const LarklaneStub* stub);

#ifdef __cplusplus
}
#endif
