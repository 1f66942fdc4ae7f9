#pragma once
// Messages about processes that did not come in time. Thread safety: thread-safe.

#include <cstdint>
#include <string>

namespace larklane::boot {

inline std::string seconds_text(std::uint64_t ns) {
  const std::uint64_t ms = ns / 1'000'000;
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

inline std::string unpublished_text(int rank, std::uint64_t wait_ns) {
  return "rank " + std::to_string(rank) + " has not published its card within " +
         seconds_text(wait_ns);
}

/// @param ranks  as ranks_text() writes them
inline std::string absent_text(const std::string& ranks, std::uint64_t wait_ns) {
  const bool is_one = ranks.find_first_of(",-") == std::string::npos;
  return (is_one ? "rank " : "ranks ") + ranks + " did not come to the fence within " +
         seconds_text(wait_ns);
}

}  // namespace larklane::boot
