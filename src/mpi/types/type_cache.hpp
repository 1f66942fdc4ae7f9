#pragma once
// The cache of flattened datatypes: all requests of a datatype share one typemap.

#include <string>

#include "base/status.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/types/types.hpp"

namespace larklane::mpi {

/// flatten(), once for each datatype. The cache keeps the result until the datatype is freed, or
/// the MPI is closed. Thread-safe.
Result<FlatType> flatten_once(MPI_Datatype datatype, std::string* problem);

/// Empties the cache when the MPI is closed and its datatypes no longer exist.
void forget_datatypes() noexcept;

}  // namespace larklane::mpi
