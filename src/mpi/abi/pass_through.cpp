// Default of each intercepted call: it goes to the MPI. The face's own definitions replace it.

#include "mpi/abi/next.hpp"

namespace larklane::mpi::face {

#define LARKLANE_PARAMS(...) (const Next& next __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_CALL(ret, Name, params, args)                                    \
  [[gnu::weak]] ret Name LARKLANE_PARAMS params {                                 \
    return next.Name != nullptr ? next.Name args : MPI_ERR_UNSUPPORTED_OPERATION; \
  }
#include "mpi/abi/calls.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_CALL

}  // namespace larklane::mpi::face
