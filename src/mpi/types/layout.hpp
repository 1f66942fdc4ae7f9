#pragma once
// How MPI's datatype constructors place their members: arithmetic only, no MPI call.

#include <cstdint>
#include <vector>

#include "base/type_builder.hpp"

namespace larklane::mpi {

/// One member type. Thread safety: single-owner.
struct Element {
  TypePart part;
  std::int64_t extent = 0;
};

/// MPI_Type_create_subarray. Lengths in elements.
struct Subarray {
  std::vector<std::int64_t> sizes, subsizes, starts;
  bool row_major = true;
};
TypePart subarray_part(const Subarray& array, const Element& element, TypeBuilder& builder);

/// MPI_Type_create_darray. A dimension is block, cyclic or whole; argument 0 is the default one.
struct Darray {
  std::vector<std::int64_t> sizes;
  std::vector<int> arguments, processes;
  std::vector<bool> cyclic, whole;
  int rank = 0;  ///< of the process in the row-major grid
  bool row_major = true;
};
TypePart darray_part(const Darray& array, const Element& element, TypeBuilder& builder);

}  // namespace larklane::mpi
