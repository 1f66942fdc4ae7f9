#pragma once
// A child process that its parent hears.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/unique_fd.hpp"

namespace larklane {

/// As fork(2). @param[out] end  of a pipe: the child writes to it, the parent reads from it
inline pid_t fork_with_pipe(UniqueFd* end) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  end->reset(ends[child == 0 ? 1 : 0]);
  ::close(ends[child == 0 ? 0 : 1]);
  return child;
}

}  // namespace larklane
