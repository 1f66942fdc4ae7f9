#pragma once
// MPI datatypes flattened into our own typemaps.

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "base/typemap.hpp"
#include "mpi/abi/handles.hpp"

namespace larklane::mpi {

/// A typemap with its first byte at offset 0, and the offset of that byte in the datatype. For
/// absolute addresses (MPI_BOTTOM), the offset is an address.
struct FlatType {
  std::shared_ptr<const Typemap> map;
  std::int64_t first_byte = 0;
};

/// O(levels + listed blocks): the length of the MPI's own description of the type.
/// @param problem  on failure, the reason as text for the user
/// @errors kInvalidArgument: the MPI does not describe the type, Larklane does not support its
/// constructor, or its size exceeds 63 bits
Result<FlatType> flatten(MPI_Datatype datatype, std::string* problem);

/// MPI_COMBINER_X of a type. Also serves types that were constructed with MPI_Count, which
/// MPI_Type_get_envelope refuses.
int combiner_of(MPI_Datatype type);
/// True if types of this combiner are predefined: the MPI owns them, and the program never frees
/// them.
bool is_predefined(int combiner);

}  // namespace larklane::mpi
