#include "profile.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace larklane::tools {
namespace {

/// Processes of one launch come here at the same time.
/// @return  the problem; empty if a file can be made in the folder
std::string make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return error.message();
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? "" : std::strerror(errno);
}

}  // namespace

int profile(ProfileRequest request) {
  // The program may go to another folder before it initialises its MPI.
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(request.folder, error);
  if (!request.run.dry_run) {
    if (const std::string problem = make_folder(folder); !problem.empty()) {
      std::fprintf(stderr, "larklane profile: --out %s: %s; remedy: name another folder\n",
                   request.folder.c_str(), problem.c_str());
      return kRefused;
    }
  }
  request.run.name = "profile";
  auto& options = request.run.options;
  options.push_back("profile=" + folder.string());
  if (!request.bytes_max.empty()) options.push_back("profile_bytes_max=" + request.bytes_max);
  if (request.overwrite) options.emplace_back("profile_overwrite=on");
  if (request.trace_writes) options.emplace_back("profile_writes=on");
  return run(request.run);
}

}  // namespace larklane::tools
