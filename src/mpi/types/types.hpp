#pragma once
// MPI datatypes flattened into our own typemaps.

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "base/typemap.hpp"
#include "mpi/abi/handles.hpp"

namespace larklane::mpi {

/// A typemap whose first byte lies at offset 0, and the offset of that byte in the datatype. With
/// absolute addresses (MPI_BOTTOM) that offset is an address.
struct FlatType {
  std::shared_ptr<const Typemap> map;
  std::int64_t first_byte = 0;
};

/// O(levels + listed blocks): as much as the MPI has to say of the type.
/// @param problem  why not, for people
/// @errors kInvalidArgument: the MPI does not take the type apart, it has a constructor that we
/// don't know, or a size beyond 63 bits
Result<FlatType> flatten(MPI_Datatype datatype, std::string* problem);

/// MPI_COMBINER_X of a type, also of one that MPI_Type_get_envelope refuses, since it was made with
/// MPI_Count.
int combiner_of(MPI_Datatype type);
/// Is a type of this combiner the MPI's own, which is never freed?
bool is_predefined(int combiner);

}  // namespace larklane::mpi
