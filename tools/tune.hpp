#pragma once
// `larklane tune`: measures what aggregation policies ask for, and writes the tuning file. Thread
// safety: single-owner.

#include <string>
#include <vector>

namespace larklane::tools {

/// Measuring is python/larklane/tune/command.py's, which comes back with `--from SAMPLES` to have the file
/// written.
/// @param words  what follows `tune`
/// @return the exit status, after a message; nothing if Python has taken over
int tune(const std::vector<std::string>& words);

}  // namespace larklane::tools
