#pragma once
// Ranks two by two: the first half sends, each to one of the second half.

#include <string>
#include <vector>

#include "options.hpp"

namespace larklane::bench {

/// What can be measured of messages: threads that share lanes, that have one each, and processes
/// instead of threads.
const std::vector<std::string>& message_way_names();

/// @param launcher  with its option for the number of ranks, for people
/// @return what can't be done with these ranks; empty if it can
std::string refusal_of_pairs(const Options& options, int ranks, const std::string& launcher);

}  // namespace larklane::bench
