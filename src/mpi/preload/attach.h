#pragma once
// What the preload stub and a family's library agree on. C, because the stub depends on libc alone.

#ifdef __cplusplus
extern "C" {
#endif

/// What the stub does for a family's library.
typedef struct LarklaneStub {
  /// The next definition of a name after the stub; null if there is none.
  void* (*find_next)(const char* name);
  /// From now on the intercepted names lead to these functions, in the order of calls.def, MPI_X
  /// before PMPI_X; null: there is none. May be called again at any time, by one thread at a time.
  void (*set_functions)(void* const* functions);
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
