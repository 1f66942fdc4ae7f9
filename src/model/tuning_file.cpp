#include "model/tuning_file.hpp"

#include <sys/utsname.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "base/config.hpp"
#include "base/input_file.hpp"
#include "base/printable.hpp"

namespace larklane::model {
namespace {

/// @return the problem; empty: none
std::string read_tuning(std::string_view text, std::string_view fabric, const HostType& host,
                        TuningFile* file) {
  std::string problem;
  auto parsed = Tuning::parse(text, &problem);
  if (!parsed) return problem;
  file->is_of_another_fabric = parsed->fabric != fabric;
  if (file->is_of_another_fabric)
    return "it is of fabric '" + printable(parsed->fabric) + "', not " + std::string(fabric);
  if (parsed->host != host)
    return "it is of another host type: " + printable(parsed->host.cpu) + ", " +
           std::to_string(parsed->host.cores) + " cores; here: " + host.cpu + ", " +
           std::to_string(host.cores) + " cores";
  file->tuning = std::move(parsed).value();
  return {};
}

}  // namespace

HostType this_host() {
  std::ifstream file("/proc/cpuinfo");
  const std::string cpuinfo{std::istreambuf_iterator<char>(file), {}};
  utsname kernel{};
  ::uname(&kernel);
  return host_type_of(cpuinfo, kernel.machine);
}

std::string default_tuning_path(std::string_view fabric, const HostType& host) {
  std::string folder = environment("XDG_CONFIG_HOME");
  if (!folder.starts_with('/')) {  // a path that is not absolute is to be ignored, says XDG
    folder = environment("HOME");
    if (folder.empty()) return {};
    folder += "/.config";
  }
  return folder + "/larklane/tuning/" + std::string(fabric) + "-" + host.key() + ".txt";
}

TuningFile find_tuning(const std::string& option, std::string_view fabric, const HostType& host) {
  TuningFile found;
  if (option == "off") return found;
  found.path = option.empty() ? default_tuning_path(fabric, host) : option;
  if (found.path.empty()) return found;
  std::string text;
  const int error = read_input_file(found.path, kTextFileBytesMax, &text);
  if (error == ENOENT && option.empty()) return found;
  const std::string wrong = error != 0 ? input_file_problem(error, kTextFileBytesMax)
                                       : read_tuning(text, fabric, host, &found);
  if (wrong.empty()) return found;
  found.problem = "tuning file " + printable(found.path) + " is ignored: " + wrong +
                  "; `larklane tune` measures anew, option tuning = off does without";
  return found;
}

}  // namespace larklane::model
