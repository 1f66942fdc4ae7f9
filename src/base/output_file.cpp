#include "base/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/unique_fd.hpp"

namespace larklane {
namespace {

/// @return 0, or an errno
int write_and_sync(const std::string& path, std::string_view text) {
  const UniqueFd fd(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666));
  if (!fd) return errno;
  while (!text.empty()) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written == 0 ? EIO : errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fsync(fd.get()) == 0 ? 0 : errno;
}

}  // namespace

int write_output_file(const std::string& path, std::string_view text) {
  const std::string part = path + ".part";
  int error = write_and_sync(part, text);
  if (error == 0 && ::rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(part.c_str());
  return error;
}

std::string output_file_problem(const std::string& path, int error, std::string_view elsewhere) {
  const bool is_full = error == ENOSPC || error == EDQUOT;
  return path + ": not written: " + std::strerror(error) +
         "; remedy: " + (is_full ? "free space there, or " : "") + std::string(elsewhere);
}

}  // namespace larklane
