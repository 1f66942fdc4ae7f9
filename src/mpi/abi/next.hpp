#pragma once
// The MPI behind us. Thread safety: immutable once attached, which happens before the first
// intercepted call goes on.

#include "mpi/abi/prototypes.hpp"

namespace larklane::mpi {

/// The next function of each name after us; null where the loaded MPI has none.
struct Next {
#define LARKLANE_CALL(ret, Name, params, args) ret(*Name) params;
#define LARKLANE_REAL(ret, Name, params) ret(*Name) params;
#include "mpi/abi/calls.def"
#include "mpi/abi/reals.def"
#undef LARKLANE_CALL
#undef LARKLANE_REAL
};

namespace detail {
extern Next next_mpi;
extern Next next_pmpi;
}  // namespace detail

/// The next MPI_X after us: a tool that was loaded after us still sees native calls. Functions of
/// reals.def are the PMPI_X here too.
inline const Next& next_mpi() noexcept { return detail::next_mpi; }
/// The next PMPI_X: for calls that nobody but the MPI has to see.
inline const Next& next_pmpi() noexcept { return detail::next_pmpi; }
/// Address of a variable of the loaded MPI; null if it has none of that name.
void* find_data(const char* name) noexcept;
/// Call before the first request of ours is handed out: until then the preload stub leads the calls
/// that concern requests alone straight to the MPI. Thread-safe.
void take_request_calls() noexcept;

/// What the face makes of each intercepted call; `next` is the table of the name (MPI_X or PMPI_X)
/// by which it was entered.
namespace face {
#define LARKLANE_PARAMS(...) (const Next& next __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_CALL(ret, Name, params, args) ret Name LARKLANE_PARAMS params;
#include "mpi/abi/calls.def"
#undef LARKLANE_CALL
#undef LARKLANE_PARAMS
}  // namespace face

}  // namespace larklane::mpi
