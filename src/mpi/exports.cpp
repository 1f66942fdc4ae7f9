// The names that programs call. Assembler names, so that no header's spelling of a prototype is in
// the way.

#include "mpi/exports.hpp"

#include "mpi/next.hpp"

namespace larklane::mpi {

#define LARKLANE_EXPORT(ret, Name, symbol, params, call)                              \
  extern "C" [[gnu::visibility("default")]] ret export_##Name params __asm__(symbol); \
  extern "C" ret export_##Name params { return call; }

#define LARKLANE_MPI_ARGS(...) (next_mpi() __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_CALL(ret, Name, params, args) \
  LARKLANE_EXPORT(ret, Name, "MPI_" #Name, params, face::Name LARKLANE_MPI_ARGS args)
#include "mpi/calls.def"
#undef LARKLANE_CALL

#define LARKLANE_PMPI_ARGS(...) (next_pmpi() __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_CALL(ret, Name, params, args) \
  LARKLANE_EXPORT(ret, p##Name, "PMPI_" #Name, params, face::Name LARKLANE_PMPI_ARGS args)
#include "mpi/calls.def"
#undef LARKLANE_CALL

void* const exported_functions[] = {
#define LARKLANE_CALL(ret, Name, params, args) \
  reinterpret_cast<void*>(export_##Name), reinterpret_cast<void*>(export_p##Name),
#include "mpi/calls.def"
#undef LARKLANE_CALL
};

}  // namespace larklane::mpi
