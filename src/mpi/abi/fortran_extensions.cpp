// Fortran entry points of the calls of extensions.def, for every MPI. Sequence as in fortran.cpp.

#include <vector>

#include "mpi/abi/fortran_names.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/requests/error.hpp"

namespace larklane::mpi {
namespace {

MPI_Request to_request(MPI_Fint request) {
#if defined(LARKLANE_FAMILY_MPICH)
  return request;
#elif defined(LARKLANE_FAMILY_ABI)
  return next_pmpi().Request_fromint(request);
#else
  return next_pmpi().Request_f2c(request);
#endif
}

}  // namespace
}  // namespace larklane::mpi

using namespace larklane::mpi;

extern "C" {

LARKLANE_FORTRAN_NAMES(mpix, MPIX, pbuf_prepare, PBUF_PREPARE,
                       (const MPI_Fint* request, MPI_Fint* ierror)) {
  *ierror = settle(face::Pbuf_prepare(next_mpi(), to_request(*request)));
}

LARKLANE_FORTRAN_NAMES(mpix, MPIX, pbuf_prepareall, PBUF_PREPAREALL,
                       (const MPI_Fint* count, const MPI_Fint* array_of_requests,
                        MPI_Fint* ierror)) {
  std::vector<MPI_Request> requests;
  for (MPI_Fint i = 0; i < *count; ++i) requests.push_back(to_request(array_of_requests[i]));
  *ierror = settle(face::Pbuf_prepareall(next_mpi(), *count, requests.data()));
}

}  // extern "C"
