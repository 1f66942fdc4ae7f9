#include "mpi/abi/info.hpp"

#include "mpi/abi/next.hpp"

namespace larklane::mpi {

std::string info_value(MPI_Info info, const char* key) {
  if (info == handles().info_null) return {};
  char value[MPI_MAX_INFO_VAL + 1] = {};
  int found = 0;
  int length = sizeof value;
  const Next& real = next_pmpi();
  if (real.Info_get_string != nullptr) {
    real.Info_get_string(info, key, &length, value, &found);
  } else {
    real.Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
  }
  return found != 0 ? std::string(value) : std::string();
}

}  // namespace larklane::mpi
