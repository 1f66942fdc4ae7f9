#pragma once
// `larklane run`: becomes the user's program, with Larklane under it. Thread safety: single-owner.

#include <string>
#include <utility>
#include <vector>

namespace larklane::tools {

struct RunRequest {
  const char* name = "run";          ///< of the command, for its messages
  std::vector<std::string> command;  ///< program and its arguments, at least one
  std::vector<std::string> options;  ///< name=value
  std::string mpi;                   ///< the value of --mpi; empty: that of LARKLANE_MPI
  std::string
      spawned;  ///< its parent (src/mpi/world/member.hpp); empty: not spawned under Larklane
  std::string sanitized;  ///< a file whose sanitizer's runtime comes first; empty: the program's
  bool summary = false;
  bool dry_run = false;
};

inline constexpr int kRefused = 2;

/// A program that was spawned and is refused is started without Larklane: its parents wait for it.
/// Returns only if the program was not started (exit status kRefused, after a message) or not to be
/// started (0).
int run(const RunRequest& request);

}  // namespace larklane::tools
