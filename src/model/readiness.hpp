#pragma once
// When the partitions of a round become ready: patterns to compute with. Pure functions; the same
// seed gives the same times everywhere.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace larklane::model {

enum class Pattern : std::uint8_t {
  simultaneous,  ///< all at 0
  laggard,       ///< all at 0 but the last, at `spread_ns`
  uniform,       ///< evenly distributed from 0 to `spread_ns`
  gaussian,      ///< standard deviation `spread_ns`, about 4 of them; none before 0
  exponential,   ///< mean `spread_ns`
  alternating,   ///< the first half at 0, the other at `spread_ns`; in the next round the reverse
  bursts,        ///< a quarter of them at 0, one each third of `spread_ns` later
};
/// Does each round differ? Without chance they repeat after at most kPatternPeriod.
constexpr bool has_chance(Pattern pattern) noexcept {
  return pattern == Pattern::uniform || pattern == Pattern::gaussian ||
         pattern == Pattern::exponential;
}
inline constexpr std::uint32_t kPatternPeriod = 2;
/// Nothing: there is none of that name.
std::optional<Pattern> pattern_named(std::string_view name) noexcept;

/// Ready times in nanoseconds. @param partitions  of each round
/// @shape  rounds x partitions
std::vector<std::vector<double>> readiness(Pattern pattern, double spread_ns,
                                           std::uint32_t partitions, std::uint32_t rounds,
                                           std::uint64_t seed);

}  // namespace larklane::model
