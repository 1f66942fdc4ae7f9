// mpif.h entry points of the partitioned calls, for an MPI that lacks them (Open MPI 4). Fortran 77
// calling sequence: all arguments by address, handles as integers, the error code last.

#include "mpi/abi/fortran_names.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/requests/error.hpp"

namespace larklane::mpi {
namespace {

MPI_Comm to_comm(const MPI_Fint* comm) { return next_pmpi().Comm_f2c(*comm); }
MPI_Datatype to_type(const MPI_Fint* type) { return next_pmpi().Type_f2c(*type); }
MPI_Info to_info(const MPI_Fint* info) { return next_pmpi().Info_f2c(*info); }
MPI_Request to_request(const MPI_Fint* request) { return next_pmpi().Request_f2c(*request); }

/// Fortran's MPI_BOTTOM is a variable in a common block of Open MPI. Its address stands for null.
/// It has one name for each spelling.
void* to_buffer(const void* buffer) {
  for (const char* const name : {"mpi_fortran_bottom_", "mpi_fortran_bottom__",
                                 "mpi_fortran_bottom", "MPI_FORTRAN_BOTTOM"}) {
    if (buffer == find_data(name)) return nullptr;
  }
  return const_cast<void*>(buffer);
}

}  // namespace
}  // namespace larklane::mpi

using namespace larklane::mpi;

extern "C" {

// With every compiler that Open MPI supports, a LOGICAL is true if its lowest bit is set.

#define LARKLANE_FORTRAN(lower, UPPER, params) \
  LARKLANE_FORTRAN_NAMES(mpi, MPI, lower, UPPER, params)

#define LARKLANE_FORTRAN_INIT(lower, UPPER, Name, Buffer)                                        \
  LARKLANE_FORTRAN(                                                                              \
      lower, UPPER,                                                                              \
      (Buffer buf, const MPI_Fint* partitions, const MPI_Count* count, const MPI_Fint* datatype, \
       const MPI_Fint* peer, const MPI_Fint* tag, const MPI_Fint* comm, const MPI_Fint* info,    \
       MPI_Fint* request, MPI_Fint* ierror)) {                                                   \
    MPI_Request made;                                                                            \
    *ierror =                                                                                    \
        settle(face::Name(next_mpi(), to_buffer(buf), *partitions, *count, to_type(datatype),    \
                          *peer, *tag, to_comm(comm), to_info(info), &made));                    \
    if (*ierror == MPI_SUCCESS) *request = next_pmpi().Request_c2f(made);                        \
  }
LARKLANE_FORTRAN_INIT(psend_init, PSEND_INIT, Psend_init, const void*)
LARKLANE_FORTRAN_INIT(precv_init, PRECV_INIT, Precv_init, void*)

LARKLANE_FORTRAN(pready, PREADY,
                 (const MPI_Fint* partition, const MPI_Fint* request, MPI_Fint* ierror)) {
  *ierror = face::Pready(next_mpi(), *partition, to_request(request));
}

LARKLANE_FORTRAN(pready_range, PREADY_RANGE,
                 (const MPI_Fint* partition_low, const MPI_Fint* partition_high,
                  const MPI_Fint* request, MPI_Fint* ierror)) {
  *ierror =
      settle(face::Pready_range(next_mpi(), *partition_low, *partition_high, to_request(request)));
}

LARKLANE_FORTRAN(pready_list, PREADY_LIST,
                 (const MPI_Fint* length, const MPI_Fint* array_of_partitions,
                  const MPI_Fint* request, MPI_Fint* ierror)) {
  *ierror =
      settle(face::Pready_list(next_mpi(), *length, array_of_partitions, to_request(request)));
}

LARKLANE_FORTRAN(parrived, PARRIVED,
                 (const MPI_Fint* request, const MPI_Fint* partition, MPI_Fint* flag,
                  MPI_Fint* ierror)) {
  int arrived = 0;
  *ierror = face::Parrived(next_mpi(), to_request(request), *partition, &arrived);
  if (*ierror == MPI_SUCCESS) *flag = arrived;
}

}  // extern "C"
