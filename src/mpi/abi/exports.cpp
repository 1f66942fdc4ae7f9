// The exported MPI_ and PMPI_ functions. They have assembler names, so a prototype may differ from
// its spelling in a header.

#include "mpi/abi/exports.hpp"

#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/requests/error.hpp"

namespace larklane::mpi {

// Counts are MPI_Count with and without the suffix _c.
namespace face {

int Psend_init_c(const Next& next, const void* buf, int partitions, MPI_Count count,
                 MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Info info,
                 MPI_Request* request) {
  return Psend_init(next, buf, partitions, count, datatype, dest, tag, comm, info, request);
}

int Precv_init_c(const Next& next, void* buf, int partitions, MPI_Count count,
                 MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Info info,
                 MPI_Request* request) {
  return Precv_init(next, buf, partitions, count, datatype, source, tag, comm, info, request);
}

// For the recording wrappers (mpi/profile).
#define LARKLANE_CALL(ret, Name, params, args)
#define LARKLANE_PARAMS(...) (const Next& next, __VA_ARGS__)
#define LARKLANE_DIRECT(ret, Name, params, args)                                         \
  ret Name LARKLANE_PARAMS params {                                                      \
    return &next == &detail::next_mpi            ? direct::Name<detail::next_mpi>        \
                                            args : direct::Name<detail::next_pmpi> args; \
  }
#define LARKLANE_HOT_REQUEST_CALL LARKLANE_DIRECT
#define LARKLANE_HOT_MESSAGE_CALL LARKLANE_DIRECT
#include "mpi/abi/calls.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_CALL
#undef LARKLANE_PARAMS
#undef LARKLANE_DIRECT

}  // namespace face

#define LARKLANE_ARGS(...) (LARKLANE_NEXT __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_EXPORT_AS(prefix, ret, Name, params)                \
  extern "C" [[gnu::visibility("default")]] ret LARKLANE_ENTRY(Name) \
  params __asm__(prefix #Name);                                      \
  extern "C" ret LARKLANE_ENTRY(Name) params
#define LARKLANE_EXPORT(ret, Name, params) LARKLANE_EXPORT_AS(LARKLANE_PREFIX, ret, Name, params)
#define LARKLANE_EXTENSION(ret, Name, params, args)                  \
  LARKLANE_EXPORT_AS(LARKLANE_EXTENSION_PREFIX, ret, Name, params) { \
    return settle(face::Name LARKLANE_ARGS args);                    \
  }
#define LARKLANE_EXPORT_CALL(ret, Name, params, args) \
  LARKLANE_EXPORT(ret, Name, params) { return settle(face::Name LARKLANE_ARGS args); }
#define LARKLANE_EXPORT_HOT_CALL(ret, Name, params, args) \
  LARKLANE_EXPORT(ret, Name, params) { return face::Name LARKLANE_ARGS args; }
#define LARKLANE_EXPORT_HOT_MESSAGE_CALL(ret, Name, params, args) \
  LARKLANE_EXPORT(ret, Name, params) { return face::direct::Name<LARKLANE_NEXT_TABLE> args; }
// While no request of ours exists, the call goes straight on, with its arguments in place.
#define LARKLANE_EXPORT_REQUEST_CALL(ret, Name, params, args) \
  LARKLANE_EXPORT(ret, Name, params) {                        \
    if (no_carriers()) [[likely]]                             \
      return LARKLANE_NEXT.Name args;                         \
    return settle(face::Name LARKLANE_ARGS args);             \
  }
#define LARKLANE_EXPORT_HOT_REQUEST_CALL(ret, Name, params, args) \
  LARKLANE_EXPORT(ret, Name, params) {                            \
    if (no_carriers()) [[likely]]                                 \
      return LARKLANE_NEXT.Name args;                             \
    return face::direct::Name<LARKLANE_NEXT_TABLE> args;          \
  }

#define LARKLANE_PREFIX "MPI_"
#define LARKLANE_EXTENSION_PREFIX "MPIX_"
#define LARKLANE_NEXT next_mpi()
#define LARKLANE_NEXT_TABLE detail::next_mpi
#define LARKLANE_ENTRY(Name) export_##Name
#define LARKLANE_CALL LARKLANE_EXPORT_CALL
#define LARKLANE_REQUEST_CALL LARKLANE_EXPORT_REQUEST_CALL
#define LARKLANE_HOT_CALL LARKLANE_EXPORT_HOT_CALL
#define LARKLANE_HOT_REQUEST_CALL LARKLANE_EXPORT_HOT_REQUEST_CALL
#define LARKLANE_HOT_MESSAGE_CALL LARKLANE_EXPORT_HOT_MESSAGE_CALL
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_PREFIX
#undef LARKLANE_EXTENSION_PREFIX
#undef LARKLANE_NEXT
#undef LARKLANE_NEXT_TABLE
#undef LARKLANE_ENTRY

#define LARKLANE_PREFIX "PMPI_"
#define LARKLANE_EXTENSION_PREFIX "PMPIX_"
#define LARKLANE_NEXT next_pmpi()
#define LARKLANE_NEXT_TABLE detail::next_pmpi
#define LARKLANE_ENTRY(Name) export_p##Name
#define LARKLANE_REQUEST_CALL LARKLANE_EXPORT_REQUEST_CALL
#define LARKLANE_HOT_CALL LARKLANE_EXPORT_HOT_CALL
#define LARKLANE_HOT_REQUEST_CALL LARKLANE_EXPORT_HOT_REQUEST_CALL
#define LARKLANE_HOT_MESSAGE_CALL LARKLANE_EXPORT_HOT_MESSAGE_CALL
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_CALL
#undef LARKLANE_EXTENSION

namespace {

#define LARKLANE_CALL(ret, Name, params, args) \
  reinterpret_cast<void*>(export_##Name), reinterpret_cast<void*>(export_p##Name),
#define LARKLANE_EXTENSION LARKLANE_CALL

void* const all_exports[] = {
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
};

/// With LARKLANE_REQUEST_CALL and LARKLANE_MESSAGE_CALL leading to the MPI. Where the MPI lacks a
/// call, ours returns the error.
#define LARKLANE_TO_MPI(ret, Name, params, args)                              \
  next_mpi().Name != nullptr ? reinterpret_cast<void*>(next_mpi().Name)       \
                             : reinterpret_cast<void*>(export_##Name),        \
      next_pmpi().Name != nullptr ? reinterpret_cast<void*>(next_pmpi().Name) \
                                  : reinterpret_cast<void*>(export_p##Name),

void* const* functions_always() noexcept {
  static void* const functions[] = {
#define LARKLANE_REQUEST_CALL LARKLANE_TO_MPI
#define LARKLANE_MESSAGE_CALL LARKLANE_TO_MPI
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
  };
  return functions;
}

void* const* functions_with_requests() noexcept {
  static void* const functions[] = {
#define LARKLANE_MESSAGE_CALL LARKLANE_TO_MPI
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
  };
  return functions;
}

}  // namespace

void* const* functions_of(Taken taken) noexcept {
  switch (taken) {
    case Taken::always:
      return functions_always();
    case Taken::requests:
      return functions_with_requests();
    case Taken::messages:
      break;
  }
  return all_exports;
}
#undef LARKLANE_TO_MPI
#undef LARKLANE_CALL
#undef LARKLANE_EXTENSION

}  // namespace larklane::mpi
