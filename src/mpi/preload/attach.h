#pragma once
// The interface between the preload stub and a family's library. C: the stub depends on libc alone.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// An event of a thread outside MPI; kinds as in profile/format.hpp.
enum {
  kLarklaneRegion = 10,   ///< a parallel region from begin to end, by its first thread
  kLarklaneMember = 11,   ///< the thread's part of a parallel region
  kLarklaneBarrier = 12,  ///< a wait at a barrier
  kLarklaneThread = 13,   ///< the thread's life, from pthread_create
  kLarklaneJoin = 14,     ///< a wait for another thread's end
};
typedef struct LarklaneThreadEvent {
  uint64_t begin_ns, end_ns;
  uint64_t value;  ///< the called function, the barrier, or the thread
  uint32_t region;
  /// Region: the requested threads, 0: all. Member: its number in its team, from 1; 0: not known.
  int32_t threads;
  uint8_t kind;
  uint64_t busy_ns;    ///< processor time since the thread last went on; 0: not measured
  int32_t delayed_ns;  ///< its wait for a core in that time; INT32_MAX: that long or longer
} LarklaneThreadEvent;
typedef void LarklaneThreadHook(const LarklaneThreadEvent* event);

/// The stub's functions for a family's library.
typedef struct LarklaneStub {
  /// The next definition of a name after the stub; null if there is none.
  void* (*find_next)(const char* name);
  /// Leads the intercepted names to these functions, in the order of calls.def, then
  /// extensions.def, then p2p.def, MPI_X before PMPI_X; null: no function. May be called again at
  /// any time, by one thread at a time.
  void (*set_functions)(void* const* functions);
  /// Calls the hook with the events of threads. Null: the plain stub. Otherwise this is the stub of
  /// `larklane profile`.
  void (*watch_threads)(LarklaneThreadHook* hook);
  /// True if the MPI serves partitioned communication. Only the profiling stub attaches then.
  int is_native;
  /// Sets a hook that runs before this process's values go to its launcher (PMIx_Commit).
  void (*before_commit)(void (*hook)(void));
  /// False: the names of p2p.def are the MPI's own.
  int has_messages;
} LarklaneStub;

/// The entry point of a family's library, exported as larklane_mpi_attach. It fills the tables of
/// next functions and handles, then sets the stub's functions. Later calls change nothing.
/// @param version  the stub's; must be the library's own
/// @return  null, or the error as text
/// @threads thread-safe
typedef const char* LarklaneAttach(const char* version, const LarklaneStub* stub);

#ifdef __cplusplus
}
#endif
