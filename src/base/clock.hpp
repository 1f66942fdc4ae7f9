#pragma once
// The one clock: nanoseconds that only grow, comparable between processes of one host. Thread
// safety: thread-safe.

#include <time.h>

#include <cstdint>

namespace larklane {

/// CLOCK_MONOTONIC in nanoseconds; 20 ns a call (vDSO).
inline std::uint64_t now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace larklane
