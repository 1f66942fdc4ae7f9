#pragma once
// The functions of the MPI below, and of tools between. Thread safety: immutable once attached,
// which happens before the first intercepted call goes on.

#include "mpi/abi/prototypes.hpp"

namespace larklane::mpi {

/// The next function of each name after this library; null where the loaded MPI has none.
struct Next {
#define LARKLANE_CALL(ret, Name, params, args) ret(*Name) params;
#define LARKLANE_EXTENSION LARKLANE_CALL
#define LARKLANE_REAL(ret, Name, params) ret(*Name) params;
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/abi/reals.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_CALL
#undef LARKLANE_EXTENSION
#undef LARKLANE_REAL
};

namespace detail {
extern Next next_mpi;
extern Next next_pmpi;
}  // namespace detail

/// The next MPI_X: a tool that was loaded after this library still sees native calls. Functions of
/// reals.def are the PMPI_X here, too.
inline const Next& next_mpi() noexcept { return detail::next_mpi; }
/// The next PMPI_X: for calls that tools need not see.
inline const Next& next_pmpi() noexcept { return detail::next_pmpi; }
/// Address of a variable of the loaded MPI; null if no variable has that name.
void* find_data(const char* name) noexcept;
/// Leads the calls that concern requests alone to this library; until then the preload stub leads
/// them straight to the MPI. Call before the program gets its first request of ours. Thread-safe.
void take_request_calls() noexcept;
/// The same for all calls of p2p.def, and those above. Call before the program's first message.
void take_message_calls() noexcept;

/// The face's implementation of each intercepted call. `next` is the table of the entry name, MPI_X
/// or PMPI_X.
namespace face {
#define LARKLANE_PARAMS(...) (const Next& next __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_CALL(ret, Name, params, args) ret Name LARKLANE_PARAMS params;
#define LARKLANE_EXTENSION LARKLANE_CALL
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_CALL
#undef LARKLANE_EXTENSION
#undef LARKLANE_PARAMS

/// The calls that most messages make: the entries jump there, with the program's arguments in
/// place. These settle their own errors.
namespace direct {
#define LARKLANE_CALL(ret, Name, params, args)
#define LARKLANE_DIRECT(ret, Name, params, args) \
  template <const Next& next>                    \
  ret Name params;
#define LARKLANE_HOT_REQUEST_CALL LARKLANE_DIRECT
#define LARKLANE_HOT_MESSAGE_CALL LARKLANE_DIRECT
#include "mpi/abi/calls.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_CALL
#undef LARKLANE_DIRECT
}  // namespace direct
/// For the file that defines one.
#define LARKLANE_DIRECT_ENTRIES(Name)                               \
  template decltype(Name<detail::next_mpi>) Name<detail::next_mpi>; \
  template decltype(Name<detail::next_pmpi>) Name<detail::next_pmpi>;
}  // namespace face

}  // namespace larklane::mpi
