#pragma once
// Values of Larklane's info keys. The MPI ignores keys that it does not know (rule I10).

#include <string>

#include "mpi/abi/handles.hpp"

namespace larklane::mpi {

/// Value of an info key; empty if the key is not set.
std::string info_value(MPI_Info info, const char* key);

}  // namespace larklane::mpi
