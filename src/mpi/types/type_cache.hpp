#pragma once
// One typemap for all requests of a datatype.

#include <string>

#include "base/status.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/types/types.hpp"

namespace larklane::mpi {

/// flatten(), once for each derived datatype: what it says is kept until the datatype is freed.
/// Thread-safe.
Result<FlatType> flatten_once(MPI_Datatype datatype, std::string* problem);

/// The MPI is closed, and its datatypes are gone.
void forget_datatypes() noexcept;

}  // namespace larklane::mpi
