#include "base/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/unique_fd.hpp"

namespace larklane {
namespace {

/// @return 0, or an errno
int write_all(const UniqueFd& fd, std::string_view text) {
  if (!fd) return errno;
  while (!text.empty()) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written == 0 ? EIO : errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// A new file, even if the name is taken: a link that waits there is not followed.
UniqueFd create(const std::string& path) {
  ::unlink(path.c_str());
  return UniqueFd(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
}

/// Where the links of `path` lead, if that is there.
std::string target_of(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : path;
}

}  // namespace

int write_output_file(const std::string& path, std::string_view text) {
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    return write_all(UniqueFd(::open(path.c_str(), O_WRONLY | O_CLOEXEC)), text);
  const std::string target = target_of(path);
  const std::string part = target + ".part";
  const UniqueFd fd = create(part);
  int error = write_all(fd, text);
  if (error == 0 && ::fsync(fd.get()) != 0) error = errno;
  if (error == 0 && ::rename(part.c_str(), target.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(part.c_str());
  return error;
}

std::string output_file_problem(const std::string& path, int error, std::string_view elsewhere) {
  const bool is_full = error == ENOSPC || error == EDQUOT;
  return path + ": not written: " + std::strerror(error) +
         "; remedy: " + (is_full ? "free space there, or " : "") + std::string(elsewhere);
}

}  // namespace larklane
