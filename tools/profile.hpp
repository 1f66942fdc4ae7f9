#pragma once
// `larklane profile`: `larklane run` with a folder in which every rank leaves its file. Thread
// safety: single-owner.

#include <string>

#include "run.hpp"

namespace larklane::tools {

struct ProfileRequest {
  std::string folder = "larklane-profile";
  std::string bytes_max;  ///< empty: the option's
  bool overwrite = false;
  bool trace_writes = false;
  RunRequest run;
};

/// As run().
int profile(ProfileRequest request);

}  // namespace larklane::tools
