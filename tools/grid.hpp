#pragma once
// Sizes, partitions and arrival pattern, shared by `larklane model` and `larklane simulate`. Thread
// safety: immutable.

#include <cstdint>
#include <string>
#include <vector>

namespace larklane::tools {

struct Grid {
  std::uint32_t partitions = 32;
  std::string pattern = "laggard";
  double spread_us = 4000;
  std::uint32_t rounds = 1000;
  std::uint64_t seed = 1;
  std::uint64_t from_bytes = 1 << 10, to_bytes = 512 << 20;
  bool json = false;

  /// Each round of the pattern differs.
  bool has_chance() const;
  /// From the smallest to the largest, each twice the one before.
  std::vector<std::uint64_t> sizes() const;
  /// Powers of two below the number of partitions, then that number.
  std::vector<std::uint32_t> group_counts() const;
  /// "laggard, 4000 us"
  std::string pattern_text() const;
  /// @return the error in --from and --to; empty: none
  std::string size_error() const;
  /// @return the error of more than `marks_max` partitions in all rounds; empty: none
  std::string rounds_error(std::uint64_t marks_max) const;
};

}  // namespace larklane::tools
