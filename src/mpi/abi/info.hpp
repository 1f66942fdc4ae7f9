#pragma once
// Info keys of ours. The MPI ignores keys that it doesn't know (rule I10).

#include <string>

#include "mpi/abi/handles.hpp"

namespace larklane::mpi {

/// Value of an info key, or nothing.
std::string info_value(MPI_Info info, const char* key);

}  // namespace larklane::mpi
