#include "base/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.hpp"

namespace larklane {
namespace {

/// @return 0, or an errno
int read_to_end(int fd, std::size_t bytes_max, std::string* text) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) return errno;
  if (S_ISDIR(about.st_mode)) return EISDIR;
  if (!S_ISREG(about.st_mode)) return EINVAL;
  const auto expected = static_cast<std::size_t>(std::max<off_t>(about.st_size, 0));
  if (expected > bytes_max) return EFBIG;
  text->resize(expected + 1);  // it may grow meanwhile; one of /proc says 0
  std::size_t done = 0;
  for (;;) {
    if (done == text->size()) text->resize(std::min(2 * done, bytes_max) + 1);
    const ssize_t got = ::read(fd, text->data() + done, text->size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
    if (done > bytes_max) return EFBIG;
  }
  text->resize(done);
  return 0;
}

}  // namespace

int read_input_file(const std::string& path, std::size_t bytes_max, std::string* text) {
  text->clear();
  struct stat about {};
  // To open a device or a pipe may already do something to it, or to its writer.
  if (::stat(path.c_str(), &about) != 0) return errno;
  if (!S_ISREG(about.st_mode)) return S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
  // Not blocking: it may be another file by now.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const int error = file ? read_to_end(file.get(), bytes_max, text) : errno;
  if (error != 0) text->clear();
  return error;
}

std::string input_file_problem(int error, std::size_t bytes_max) {
  if (error == EINVAL) return "it is no regular file";
  if (error != EFBIG) return std::strerror(error);
  return "it has more than " + std::to_string(bytes_max) + " bytes";
}

}  // namespace larklane
