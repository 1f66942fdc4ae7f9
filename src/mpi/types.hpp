#pragma once
// MPI datatypes flattened into our own typemap, once per init call.

#include <memory>
#include <string>

#include "base/status.hpp"
#include "base/typemap.hpp"
#include "mpi/handles.hpp"

namespace larklane::mpi {

/// @param problem  why not, for people
/// @errors  kInvalidArgument: the MPI does not take the type apart, or it has a constructor that we
/// don't know
Result<std::shared_ptr<const Typemap>> flatten(MPI_Datatype datatype, std::string* problem);

}  // namespace larklane::mpi
