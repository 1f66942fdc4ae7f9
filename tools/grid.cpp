#include "grid.hpp"

#include <cstdio>

#include "model/readiness.hpp"

namespace larklane::tools {

bool Grid::has_chance() const {
  const auto named = model::pattern_named(pattern);
  return named && model::has_chance(*named);
}

std::vector<std::uint64_t> Grid::sizes() const {
  std::vector<std::uint64_t> found;
  for (std::uint64_t bytes = from_bytes; bytes <= to_bytes; bytes *= 2) found.push_back(bytes);
  return found;
}

std::vector<std::uint32_t> Grid::group_counts() const {
  std::vector<std::uint32_t> found;
  for (std::uint32_t count = 1; count < partitions; count *= 2) found.push_back(count);
  found.push_back(partitions);
  return found;
}

std::string Grid::pattern_text() const {
  if (pattern == "simultaneous") return pattern;
  char spread[32];
  std::snprintf(spread, sizeof spread, ", %g us", spread_us);
  return pattern + spread;
}

std::string Grid::size_error() const {
  if (from_bytes % partitions != 0)
    return "--from: " + std::to_string(from_bytes) + " bytes are no multiple of the " +
           std::to_string(partitions) + " partitions";
  if (to_bytes < from_bytes)
    return "--to: " + std::to_string(to_bytes) + " bytes are less than --from";
  return {};
}

std::string Grid::rounds_error(std::uint64_t marks_max) const {
  if (std::uint64_t{rounds} * partitions <= marks_max) return {};
  return "--rounds: at most " + std::to_string(marks_max / partitions) + " of " +
         std::to_string(partitions) + " partitions";
}

}  // namespace larklane::tools
