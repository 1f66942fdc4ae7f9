#pragma once
// A status for people. Thread safety: thread-safe.

#include <cstring>
#include <string>

#include "base/status.hpp"

namespace larklane {

/// "system call failed (Operation not permitted)": the code's name, and the errno behind it.
inline std::string status_text(Status status) {
  std::string text = errc_name(status.code());
  if (status.detail() != 0) text += std::string(" (") + std::strerror(status.detail()) + ")";
  return text;
}

}  // namespace larklane
