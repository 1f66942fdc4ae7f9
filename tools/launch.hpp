#pragma once
// `larklane launch`: processes of a native program on this host, and where they meet. Thread
// safety: single-owner.

#include <string>
#include <vector>

namespace larklane::tools {

struct LaunchRequest {
  static constexpr int kCountMax = 1024;

  std::vector<std::string> command;  ///< program and its arguments, at least one
  int count = 1;                     ///< 1..kCountMax
  double timeout_s = 0;              ///< 0: none
  bool tags_output = false;
};

/// Exit status of a launch that has lasted too long, as timeout(1) has it.
inline constexpr int kTimedOut = 124;

/// @return exit status: 0, if each process has it; that of the first process that fails, 128 + its
/// signal; kTimedOut; 126 or 127, as a shell has it, if the program can't be started; kRefused
int launch(const LaunchRequest& request);

}  // namespace larklane::tools
