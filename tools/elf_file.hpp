#pragma once
// What has to be known about an executable or a library before it runs, read from its file.
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

  /// @return  nothing if the file is no ELF file, or can't be read
  static std::optional<ElfFile> read(const std::filesystem::path& path);

  Machine machine() const { return machine_; }
  /// Which of what the kernel needs is damaged; empty: nothing that was looked at.
  const std::string& problem() const { return problem_; }
  /// Started without the dynamic linker: nothing can be preloaded. The rest is known only of native
  /// files.
  bool is_static() const { return interpreter_.empty() && needed_.empty(); }
  /// Path of the dynamic linker; empty for libraries and static programs.
  const std::string& interpreter() const { return interpreter_; }
  const std::vector<std::string>& needed() const { return needed_; }
  bool defines(std::string_view symbol) const { return defined_.contains(symbol); }
  /// No symbol table: what a static program defines is not known.
  bool is_stripped() const { return stripped_; }

 private:
  class Reader;

  Machine machine_ = Machine::native;
  std::string problem_;
  std::string interpreter_;
  std::vector<std::string> needed_;
  std::set<std::string, std::less<>> defined_;  // of the symbols that matter here
  bool stripped_ = true;
};

}  // namespace larklane::tools
