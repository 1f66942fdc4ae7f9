#pragma once
// What the preload stub and a family's library agree on. C, because the stub depends on libc alone.

#ifdef __cplusplus
extern "C" {
#endif

/// Finds the next definition of a name after the stub; null if there is none.
typedef void* LarklaneFindNext(const char* name);

/// The one entry point of a family's library, exported as larklane_mpi_attach: fills its tables of
/// next functions and handles. Calls after the first change nothing.
/// @param version         the stub's; must be the library's own
/// @param[out] functions  the library's functions in the order of calls.def, MPI_X before PMPI_X
/// @return  null, or what is wrong in words
/// @threads thread-safe
typedef const char* LarklaneAttach(const char* version, LarklaneFindNext* find_next,
                                   void* const** functions);

#ifdef __cplusplus
}
#endif
