#pragma once
// The functions for the stub's slots, in the order of calls.def, then extensions.def, MPI_X before
// PMPI_X.
// Thread safety: immutable once attached.

namespace larklane::mpi {

/// Every name leads to a function of this library.
void* const* functions_with_requests() noexcept;
/// For the time before the first partitioned request: the calls that concern requests alone lead to
/// the MPI, as without Larklane.
void* const* functions_without_requests() noexcept;

}  // namespace larklane::mpi
