#include "mpi/p2p/hints.hpp"

#include "mpi/abi/info.hpp"

namespace larklane::mpi::p2p {

msg::Hints hints_of(MPI_Info info) {
  const auto promises = [info](const char* key) { return info_value(info, key) == "true"; };
  return {.no_any_source = promises("mpi_assert_no_any_source"),
          .no_any_tag = promises("mpi_assert_no_any_tag"),
          .allow_overtaking = promises("mpi_assert_allow_overtaking")};
}

}  // namespace larklane::mpi::p2p
