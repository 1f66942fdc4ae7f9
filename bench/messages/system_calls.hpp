#pragma once
// Counts a process's system calls.

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "measure/options.hpp"

namespace larklane::bench {

/// Counts system calls of the calling thread and of threads that it creates later. The kernel
/// counts them at its tracepoint raw_syscalls:sys_enter. Thread safety: none.
class SystemCalls {
 public:
  /// @return none if the kernel doesn't let this user count; `problem` then says why
  static std::optional<SystemCalls> count(std::string* problem) {
    std::uint64_t id = 0;
    for (const char* root : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"})
      if (std::ifstream(std::string(root) + "/events/raw_syscalls/sys_enter/id") >> id) break;
    if (id == 0) {
      *problem =
          "no tracepoint raw_syscalls:sys_enter in /sys/kernel/tracing: mount tracefs, and "
          "run as root";
      return std::nullopt;
    }
    perf_event_attr event{};
    event.type = PERF_TYPE_TRACEPOINT;
    event.size = sizeof event;
    event.config = id;
    event.inherit = 1;
    const long file = ::syscall(SYS_perf_event_open, &event, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (file < 0) {
      *problem = std::string("perf_event_open: ") + std::strerror(errno) +
                 ": CAP_PERFMON, or a lower kernel.perf_event_paranoid, is needed";
      return std::nullopt;
    }
    return SystemCalls(static_cast<int>(file));
  }
  SystemCalls(SystemCalls&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  SystemCalls& operator=(SystemCalls&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~SystemCalls() {
    if (file_ >= 0) ::close(file_);
  }
  std::uint64_t now() const {
    std::uint64_t calls = 0;
    if (::read(file_, &calls, sizeof calls) == sizeof calls) return calls;
    std::fprintf(stderr, "--count system-calls: the counter can't be read: %s\n",
                 std::strerror(errno));
    std::_Exit(2);
  }

 private:
  explicit SystemCalls(int file) : file_(file) {}

  int file_;
};

/// @return the counter for --count, if the options have it; none after a `problem`
inline std::optional<SystemCalls> count_system_calls(const Options& options, std::string* problem) {
  if (options.count != "system-calls") return std::nullopt;
  auto counter = SystemCalls::count(problem);
  if (!counter) *problem = "--count system-calls: " + *problem;
  return counter;
}

}  // namespace larklane::bench
