#pragma once
// What the stub's slots lead to, in the order of calls.def, MPI_X before PMPI_X.
// Thread safety: immutable once attached.

namespace larklane::mpi {

/// Every name leads to us.
void* const* functions_with_requests() noexcept;
/// While no partitioned request has been made, the calls that concern requests alone lead to the
/// MPI, as if we were not there.
void* const* functions_without_requests() noexcept;

}  // namespace larklane::mpi
