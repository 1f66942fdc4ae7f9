#pragma once
// The ranks that messages between threads, and applications of such, need.

#include <string>
#include <vector>

#include "options.hpp"

namespace larklane::bench {

/// What can be measured of them: threads that share lanes, that have one each, and processes
/// instead of threads.
const std::vector<std::string>& lane_way_names();

/// Messages go from the first half of the ranks to the second, each to one of it; applications take
/// two and more.
///
/// @param launcher  with its option for the number of ranks, for people
/// @return what can't be done with these ranks; empty if it can
std::string refusal_of_crew(const Options& options, int ranks, const std::string& launcher);
/// The same of a way that is none of `names`.
std::string refusal_of_ways(const Options& options, const std::vector<std::string>& names);

}  // namespace larklane::bench
