#pragma once
// Facts about a program before it runs: can Larklane be put under it, and which MPI will it load?
// Thread safety: immutable.

#include <filesystem>
#include <string>
#include <vector>

namespace larklane::tools {

struct Program {
  enum class Kind { dynamic_executable, static_executable, script };

  std::filesystem::path path;  ///< as execvp would find it; empty if it finds nothing
  Kind kind = Kind::dynamic_executable;
  std::string family;  ///< of the MPI that it is linked with; empty if none is (Python, scripts)
  std::filesystem::path mpi;  ///< the MPI's library, if a family is known
  /// Runtimes of sanitizers that it is linked with: AddressSanitizer's ends a program in which it
  /// is not the first library.
  std::vector<std::filesystem::path> sanitizers;
  std::string how;      ///< one sentence on how the family was found, or why not
  std::string linker;   ///< the dynamic linker that starts it, or its interpreter
  std::string refusal;  ///< why `larklane run` can't serve it, with the remedy; empty if it can

  /// @param name          as the user gave it; looked up in PATH if it has no slash
  /// @param family_given  the user says which family it is: an MPI that we don't know is no reason
  /// to refuse
  static Program inspect(const std::string& name, bool family_given);
};

/// A shared runtime of AddressSanitizer or another sanitizer of GCC or Clang.
/// @param library  a path, or a name that the dynamic linker looks up
bool is_sanitizer(const std::filesystem::path& library);
/// Runtimes that a program or a library is linked with, directly or not, as the dynamic linker
/// finds them now. @param linker  of a library: the program's that will load it
std::vector<std::filesystem::path> sanitizers_of(const std::filesystem::path& file,
                                                 const std::string& linker);

}  // namespace larklane::tools
