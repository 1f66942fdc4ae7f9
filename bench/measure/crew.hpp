#pragma once
// The ranks that messages between threads, and applications of such, need.

#include <string>

#include "options.hpp"

namespace larklane::bench {

/// Messages go from the first half of the ranks to the second, each to one of it; applications take
/// two and more.
///
/// @param launcher  with its option for the number of ranks, for people
/// @return what can't be done with these ranks; empty if it can
std::string refusal_of_crew(const Options& options, int ranks, const std::string& launcher);
/// The same of a way that the benchmark does not have.
std::string refusal_of_ways(const Options& options);

}  // namespace larklane::bench
