#pragma once
// Facts about an executable or a library that must be known before it runs, read from its file.
// Thread safety: immutable.

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace larklane::tools {

class ElfFile {
 public:
  enum class Machine { native, other_width, other_machine };

  enum class Parts { all, needs };
  /// @param parts  needs: without definitions; a large library has thousands of them
  /// @return  nothing if the file is no ELF file, or can't be read
  static std::optional<ElfFile> read(const std::filesystem::path& path, Parts parts = Parts::all);

  Machine machine() const { return machine_; }
  /// The part needed by the kernel that is damaged; empty: none of those that were checked.
  const std::string& problem() const { return problem_; }
  /// Started without the dynamic linker: nothing can be preloaded. The rest is known only of native
  /// files.
  bool is_static() const { return interpreter_.empty() && needed_.empty(); }
  /// Path of the dynamic linker; empty for libraries and static programs.
  const std::string& interpreter() const { return interpreter_; }
  const std::vector<std::string>& needed() const { return needed_; }
  /// Of a library; empty: it has none. So are the search paths, with the linker's words in them.
  const std::string& soname() const { return soname_; }
  const std::string& rpath() const { return rpath_; }
  const std::string& runpath() const { return runpath_; }
  /// The linker looks for its libraries in no folder of the system.
  bool has_no_default_folders() const { return has_no_default_folders_; }
  bool defines(std::string_view symbol) const { return defined_.contains(symbol); }
  /// No symbol table: a static program's definitions are not known.
  bool is_stripped() const { return stripped_; }

 private:
  class Reader;

  Machine machine_ = Machine::native;
  std::string problem_;
  std::string interpreter_;
  std::vector<std::string> needed_;
  std::string soname_, rpath_, runpath_;
  bool has_no_default_folders_ = false;
  std::set<std::string, std::less<>> defined_;  // of the symbols that matter here
  bool stripped_ = true;
};

}  // namespace larklane::tools
