#pragma once
// `larklane noise`: when this machine takes its cores from a program. Thread safety: single-owner.

#include <string>

namespace larklane::tools {

struct NoiseRequest {
  double seconds = 10;
  double threshold_us = 1;
  std::string path = "noise.json";
  bool overwrite = false;
};

/// Records on all cores that this process may use, for `larklane bench --noise trace:FILE`.
/// @return the exit status, after a message
int noise(const NoiseRequest& request);

}  // namespace larklane::tools
