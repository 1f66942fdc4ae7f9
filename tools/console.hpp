#pragma once
// The command's own output. Thread safety: single-owner, one for each process.

#include <cstdio>

namespace larklane::tools {

/// While it lives, stdout and stderr escape control characters but line ends and tabs: output may
/// quote the environment, a file or another process.
class Console {
 public:
  Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  /// Writes out the buffered output. @return `status`; if that is 0 and standard output did not
  /// take everything, 1 after a message
  int end(int status);

 private:
  /// One stream of the C library.
  struct Stream {
    int fd;
    std::FILE* before = nullptr;  ///< as it was
    std::FILE* file = nullptr;    ///< in its place
    int error = 0;                ///< errno of the first write that failed
    char kept[4] = {};            ///< the begin of a character
    std::size_t kept_bytes = 0;
  };
  static ssize_t write(void* cookie, const char* bytes, std::size_t count);

  Stream out_, errors_;
};

}  // namespace larklane::tools
