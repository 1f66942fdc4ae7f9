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

/// MPI_COMBINER_X of a type, also of one that MPI_Type_get_envelope refuses, since it was made with
/// MPI_Count.
int combiner_of(MPI_Datatype type);

}  // namespace larklane::mpi
