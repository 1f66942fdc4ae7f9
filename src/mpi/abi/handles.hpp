#pragma once
// Predefined handles at run time. Open MPI's MPI_COMM_WORLD is the address of a variable in libmpi,
// and this library does not link libmpi. Use handles().comm_world where a program would write
// MPI_COMM_WORLD. Constants that are numbers (MPI_ANY_TAG, MPI_ERR_*, MPI_UNDEFINED,
// MPI_STATUS_IGNORE, MPI_COMBINER_*) come from the header as usual.
// Thread safety: immutable once attached.

#include <cstdint>
#include <type_traits>

#include "mpi/abi/prototypes.hpp"

namespace larklane::mpi {

/// Null where the loaded MPI lacks a handle (session_null on Open MPI 4).
struct Handles {
#define LARKLANE_HANDLE(type, member, mpi_name, ompi_variable) type member;
#include "mpi/abi/handles.def"
#undef LARKLANE_HANDLE
};

namespace detail {
extern Handles handles;
}  // namespace detail

inline const Handles& handles() noexcept { return detail::handles; }

/// The bits of any MPI handle.
template <class Handle>
std::uint64_t handle_bits(Handle handle) noexcept {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<std::uintptr_t>(handle);
  else
    return static_cast<std::make_unsigned_t<Handle>>(handle);
}

}  // namespace larklane::mpi
