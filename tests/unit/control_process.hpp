#pragma once
// A peer in a process of its own.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/unique_fd.hpp"
#include "unit/fork_with_pipe.hpp"

namespace larklane::control {

/// A forked process: a peer that can be killed. Forked before the test has threads.
class Process {
 public:
  /// `body` runs in the child; it may send numbers to its parent. Its result is the exit status.
  using Tell = std::function<void(std::uint64_t)>;
  explicit Process(const std::function<int(const Tell&)>& body) {
    pid_ = fork_with_pipe(&told_);
    if (pid_ == 0) {
      const int out = told_.get();
      const int status = body([out](std::uint64_t number) {
        if (::write(out, &number, sizeof number) != sizeof number) ::_exit(99);
      });
      ::_exit(status);
    }
  }
  ~Process() {
    if (pid_ > 0) kill();
  }
  pid_t pid() const { return pid_; }
  /// The next number that the child sends.
  std::uint64_t hear() {
    std::uint64_t number = 0;
    pollfd readable{told_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&readable, 1, 120'000), 1);
    EXPECT_EQ(::read(told_.get(), &number, sizeof number), static_cast<ssize_t>(sizeof number));
    return number;
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    wait();
  }
  int wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(std::exchange(pid_, 0), &status, 0) > 0, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
  UniqueFd told_;
};

/// In a child: a grandchild with its descriptors, which ends within a minute, even if the test
/// dies. The child sends its number.
inline void leave_grandchild(const Process::Tell& tell) {
  const pid_t grandchild = ::fork();
  if (grandchild == 0) {
    ::alarm(60);
    for (;;) ::pause();
  }
  tell(static_cast<std::uint64_t>(grandchild));
}

/// False also of a process that has ended and that its parent has not waited for.
inline bool runs(pid_t process) {
  const UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  pollfd look{end.get(), POLLIN, 0};
  return end && ::poll(&look, 1, 0) == 0;
}

}  // namespace larklane::control
