#pragma once
// The cache of flattened datatypes: all requests of a datatype share one typemap.

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/requests/handle_table.hpp"
#include "mpi/types/types.hpp"

namespace larklane::mpi {

/// flatten(), once for each datatype. The cache keeps the result until the datatype is freed, or
/// the MPI is closed. Thread-safe.
Result<FlatType> flatten_once(MPI_Datatype datatype, std::string* problem);

/// The properties of a datatype that most messages need. Thread safety: immutable.
struct PlainType {
  std::int64_t bytes;       ///< of an element
  std::int64_t first_byte;  ///< offset in the element, or an address
  bool is_one_block;        ///< the element has no gap
  bool is_dense;            ///< elements follow each other without a gap
};

namespace detail {
extern constinit LastingHandleTable plain_types;  // of committed datatypes, by their handles
}

/// Null: not a datatype that make_plain_type() has made. Valid until the program frees it.
inline const PlainType* find_plain_type(MPI_Datatype datatype) noexcept {
  return static_cast<const PlainType*>(detail::plain_types.table.find(handle_bits(datatype)));
}
/// The same, once for each datatype that the cache keeps. Nothing, with the reason, if flatten()
/// fails, or the datatype is not committed. @pre the private communicator exists
std::optional<PlainType> make_plain_type(MPI_Datatype datatype, std::string* problem);

/// Empties the cache when the MPI is closed and its datatypes no longer exist.
void forget_datatypes() noexcept;

}  // namespace larklane::mpi
