#pragma once
// Where this command's own files lie. Thread safety: thread-safe.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace larklane::tools {

/// The MPI families: each has a library of its own, with this name in it.
inline constexpr std::string_view kFamilies[] = {"mpich", "ompi", "abi"};
/// The name of a family for people.
std::string_view family_title(std::string_view family);

/// The libraries that `larklane run` uses, found by their place relative to this executable: in the
/// build tree and after `cmake --install` alike.
struct Place {
  std::filesystem::path preload;  ///< liblarklane_preload.so; empty if it is missing
  // In the same folder.
  std::filesystem::path messages_preload;  ///< liblarklane_messages_preload.so
  std::filesystem::path profile_preload;   ///< liblarklane_profile_preload.so
  std::filesystem::path folder;  ///< where it lies, or the first place where it was looked for

  static Place find();
  /// A folder beside the command's own, in the build tree and after an installation; empty if it is
  /// missing.
  static std::filesystem::path find_beside(std::string_view relative);
  /// Path of the family's library; empty if it was not built.
  std::filesystem::path library(std::string_view family) const;
};

}  // namespace larklane::tools
