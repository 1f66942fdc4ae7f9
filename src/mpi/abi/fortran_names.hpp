#pragma once
// The names of a Fortran entry point. Compilers disagree on underscores and case, so each name has
// four spellings, with and without the P of the profiling interface.

#define LARKLANE_FORTRAN_SPELLING(name, original, params) \
  [[gnu::visibility("default"), gnu::alias(#original)]] void name params;
/// Begins the definition of `prefix`_`lower`_. @param prefix, PREFIX  mpi, MPI; or mpix, MPIX
#define LARKLANE_FORTRAN_NAMES(prefix, PREFIX, lower, UPPER, params)              \
  LARKLANE_FORTRAN_SPELLING(prefix##_##lower, prefix##_##lower##_, params)        \
  LARKLANE_FORTRAN_SPELLING(prefix##_##lower##__, prefix##_##lower##_, params)    \
  LARKLANE_FORTRAN_SPELLING(PREFIX##_##UPPER, prefix##_##lower##_, params)        \
  LARKLANE_FORTRAN_SPELLING(p##prefix##_##lower, prefix##_##lower##_, params)     \
  LARKLANE_FORTRAN_SPELLING(p##prefix##_##lower##_, prefix##_##lower##_, params)  \
  LARKLANE_FORTRAN_SPELLING(p##prefix##_##lower##__, prefix##_##lower##_, params) \
  LARKLANE_FORTRAN_SPELLING(P##PREFIX##_##UPPER, prefix##_##lower##_, params)     \
  [[gnu::visibility("default")]] void prefix##_##lower##_ params
