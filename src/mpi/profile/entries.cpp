// The functions for the profiling stub's slots.

#include "mpi/profile/threads.hpp"
#include "mpi/profile/tracer.hpp"
#include "mpi/requests/error.hpp"

namespace larklane::mpi {

namespace profiled {
// Each call without a wrapper goes to the face.
#define LARKLANE_PARAMS(...) (const Next& next __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_ARGS(...) (next __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_CALL(ret, Name, params, args) \
  [[gnu::weak]] ret Name LARKLANE_PARAMS params { return face::Name LARKLANE_ARGS args; }
#define LARKLANE_EXTENSION LARKLANE_CALL
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_CALL
#undef LARKLANE_PARAMS
#undef LARKLANE_ARGS
}  // namespace profiled

namespace {

#define LARKLANE_ARGS(...) (LARKLANE_NEXT __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_CALL(ret, Name, params, args) \
  ret LARKLANE_ENTRY(Name) params { return settle(profiled::Name LARKLANE_ARGS args); }

#define LARKLANE_ENTRY(Name) entry_##Name
#define LARKLANE_NEXT next_mpi()
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_NEXT
#undef LARKLANE_ENTRY

#define LARKLANE_ENTRY(Name) entry_p##Name
#define LARKLANE_NEXT next_pmpi()
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_NEXT
#undef LARKLANE_ENTRY
#undef LARKLANE_CALL
#undef LARKLANE_ARGS

}  // namespace

void* const* functions_of_profile() noexcept {
#define LARKLANE_CALL(ret, Name, params, args) \
  reinterpret_cast<void*>(entry_##Name), reinterpret_cast<void*>(entry_p##Name),
  static void* const functions[] = {
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
  };
#undef LARKLANE_CALL
#undef LARKLANE_EXTENSION
  return functions;
}

}  // namespace larklane::mpi
