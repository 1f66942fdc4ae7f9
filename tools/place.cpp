#include "place.hpp"

#include <system_error>

namespace larklane::tools {

std::string_view family_title(std::string_view family) {
  if (family == "mpich") return "MPICH ABI (MPICH, Intel MPI, MVAPICH)";
  if (family == "ompi") return "Open MPI";
  return "MPI 5.0 standard ABI";
}

Place Place::find() {
  std::error_code error;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", error);
  Place place;
  // The second is where the build tree has it, the first where it is installed; often the same.
  for (const char* relative : {LARKLANE_LIBRARIES_FROM_COMMAND, "../lib"}) {
    const auto folder = (executable.parent_path() / relative).lexically_normal();
    if (place.folder.empty()) place.folder = folder;
    const auto preload = folder / "liblarklane_preload.so";
    if (!std::filesystem::exists(preload, error)) continue;
    place.folder = folder;
    place.preload = preload;
    place.messages_preload = folder / "liblarklane_messages_preload.so";
    place.profile_preload = folder / "liblarklane_profile_preload.so";
    break;
  }
  return place;
}

std::filesystem::path Place::find_beside(std::string_view relative) {
  std::error_code error;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path = executable.parent_path().parent_path() / relative;
  return std::filesystem::exists(path, error) ? path : std::filesystem::path();
}

std::filesystem::path Place::library(std::string_view family) const {
  auto path = folder / ("liblarklane_mpi_" + std::string(family) + LARKLANE_LIBRARY_SUFFIX);
  std::error_code error;
  return std::filesystem::exists(path, error) ? path : std::filesystem::path();
}

}  // namespace larklane::tools
