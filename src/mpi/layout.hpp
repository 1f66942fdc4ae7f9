#pragma once
// How MPI's datatype constructors place their members: arithmetic only, no MPI call.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/typemap.hpp"

namespace larklane::mpi {

using Blocks = std::vector<TypeBlock>;

/// One member type. Thread safety: single-owner.
struct Element {
  Blocks blocks;
  std::int64_t extent = 0;
};

/// `count` copies of `blocks`, the first at `offset`, `stride` bytes apart; what continues the
/// block before it is merged.
void append_repeated(const Blocks& blocks, std::int64_t offset, std::size_t count,
                     std::int64_t stride, Blocks* out);

/// MPI_Type_create_subarray. Lengths in elements.
struct Subarray {
  std::vector<std::int64_t> sizes, subsizes, starts;
  bool row_major = true;
};
void append_subarray(const Subarray& array, const Element& element, Blocks* out);

/// MPI_Type_create_darray. A dimension is block, cyclic or whole; argument 0 is the default one.
struct Darray {
  std::vector<std::int64_t> sizes;
  std::vector<int> arguments, processes;
  std::vector<bool> cyclic, whole;
  int rank = 0;  ///< of the process in the row-major grid
  bool row_major = true;
};
void append_darray(const Darray& array, const Element& element, Blocks* out);

}  // namespace larklane::mpi
