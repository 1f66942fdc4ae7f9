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
#undef LARKLANE_NEXT
#define LARKLANE_NEXT detail::traffic_mpi
#include "mpi/abi/traffic.def"
#undef LARKLANE_NEXT
#undef LARKLANE_ENTRY

#define LARKLANE_ENTRY(Name) entry_p##Name
#define LARKLANE_NEXT next_pmpi()
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#undef LARKLANE_NEXT
#define LARKLANE_NEXT detail::traffic_pmpi
#include "mpi/abi/traffic.def"
#undef LARKLANE_NEXT
#undef LARKLANE_ENTRY
#undef LARKLANE_CALL
#undef LARKLANE_ARGS

template <class Function>
void find(void* (*find_next)(const char*), const char* name, Function*& function) noexcept {
  function = reinterpret_cast<Function*>(find_next(name));
}

}  // namespace

TrafficTables find_traffic(void* (*find_next)(const char*)) noexcept {
  TrafficTables tables;
#define LARKLANE_CALL(ret, Name, params, args)    \
  find(find_next, "MPI_" #Name, tables.mpi.Name); \
  find(find_next, "PMPI_" #Name, tables.pmpi.Name);
#include "mpi/abi/traffic.def"
#undef LARKLANE_CALL
  fill_large_counts(tables.mpi);
  fill_large_counts(tables.pmpi);
  return tables;
}

void set_traffic(const TrafficTables& tables, bool native) noexcept {
  detail::traffic_mpi = tables.mpi;
  detail::traffic_pmpi = tables.pmpi;
  detail::profiled_is_native = native;
}

void* const* functions_of_profile() noexcept {
#define LARKLANE_CALL(ret, Name, params, args) \
  reinterpret_cast<void*>(entry_##Name), reinterpret_cast<void*>(entry_p##Name),
  static void* const functions[] = {
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/abi/traffic.def"
  };
#undef LARKLANE_CALL
#undef LARKLANE_EXTENSION
  return functions;
}

}  // namespace larklane::mpi
