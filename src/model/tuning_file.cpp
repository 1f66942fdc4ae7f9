#include "model/tuning_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/config.hpp"
#include "base/unique_fd.hpp"

namespace larklane::model {
namespace {

constexpr std::size_t kBytesMax = 1 << 20;

/// The whole of a file. @return why not, or 0; ENOENT: it is not there
int read_whole(const std::string& path, std::string* text) {
  // Not blocking: it may be a pipe that nobody writes to.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0) return errno;
  if (S_ISDIR(about.st_mode)) return EISDIR;
  if (!S_ISREG(about.st_mode)) return EINVAL;
  text->resize(std::min<std::size_t>(static_cast<std::size_t>(about.st_size), kBytesMax) + 1);
  std::size_t done = 0;
  while (done < text->size()) {
    const ssize_t got = ::read(file.get(), text->data() + done, text->size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  if (done > kBytesMax) return EFBIG;
  text->resize(done);
  return 0;
}

/// @return what is wrong; empty: nothing
std::string read_tuning(std::string_view text, std::string_view fabric, const HostType& host,
                        std::optional<Tuning>* tuning) {
  std::string problem;
  auto parsed = Tuning::parse(text, &problem);
  if (!parsed) return problem;
  if (parsed->fabric != fabric)
    return "it is of fabric '" + parsed->fabric + "', not " + std::string(fabric);
  if (parsed->host != host)
    return "it is of another host type: " + parsed->host.cpu + ", " +
           std::to_string(parsed->host.cores) + " cores; here: " + host.cpu + ", " +
           std::to_string(host.cores) + " cores";
  *tuning = std::move(parsed).value();
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
  if (!folder.starts_with('/')) {  // what is not absolute is to be ignored, says XDG
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
  const int error = read_whole(found.path, &text);
  if (error == ENOENT && option.empty()) return found;
  const std::string wrong = error != 0 ? std::string(std::strerror(error))
                                       : read_tuning(text, fabric, host, &found.tuning);
  if (wrong.empty()) return found;
  found.problem = "tuning file " + found.path + " is ignored: " + wrong +
                  "; `larklane tune` measures anew, option tuning = off does without";
  return found;
}

}  // namespace larklane::model
