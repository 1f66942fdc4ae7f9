#pragma once
// Options: one row each in options.def. config.cpp is the only file that reads the environment.
// Thread safety: immutable after construction.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace larklane {

/// The value of every option, as given by (in rising precedence) default, file (LARKLANE_CONFIG),
/// environment, program.
struct Config {
  using text = std::string;
  using path = std::string;
  using secret = std::string;  ///< rows() and messages say how long it is
  using bytes = std::uint64_t;
  using count = std::uint32_t;
  using nanos = std::uint64_t;
  using flag = bool;
#define LARKLANE_OPTION(name, type, default_value, range, since, doc) type name;
#include "base/options.def"
#undef LARKLANE_OPTION

  enum class Source : std::uint8_t { default_value, file, environment, program };
  /// One row of `larklane info`.
  struct Row {
    std::string_view name, type, default_text, range, since, doc;
    std::string value_text;
    Source source;
  };
  struct Problem {
    bool fatal;  ///< malformed or out of range: initialisation must fail; false: an unknown name
    std::string text;  ///< names variable, value and accepted form, or the nearest known name
  };

  Config();  ///< all defaults
  /// Reads file and environment. `problems` receives the problems found, at most eleven of each; a
  /// fatal one makes the result kBadOption.
  static Result<Config> load(std::vector<Problem>* problems);
  /// Set one option from text, as a program would. @errors kBadOption; then `problem` says why
  Status set(std::string_view name, std::string_view value, std::string* problem);
  std::vector<Row> rows() const;

 private:
  /// @param where  the message's name of the option: variable, file and line, or name
  bool assign(std::size_t index, std::string_view value, Source source, std::string_view where,
              std::string* problem);
  template <class Place, class Found>
  void read_line(std::string_view line, const Place& place, Found* found);
  void read_file(const std::string& file_path, std::vector<Problem>* problems);
  void read_environment(std::vector<Problem>* problems);

  std::vector<Source> sources_;
};

/// The option is a secret, which is given in the environment, in a file or by the program only.
bool is_secret_option(std::string_view name) noexcept;

/// A variable that the launcher sets (job id, rank), not an option; empty if it is not there.
std::string environment(const char* name);
/// All variables but those of options of type `secret`, as execve() takes them: for a process that
/// this one starts and that is none of the job. Valid until the environment changes.
std::vector<char*> environment_without_secrets();
/// The same, and the variable is removed: child processes do not inherit it.
/// Not while other threads use the environment.
std::string take_environment(const char* name);

}  // namespace larklane
