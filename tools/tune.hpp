#pragma once
// `larklane tune`: measures the figures that aggregation policies need, and writes the tuning file.
// Thread safety: single-owner.

#include <string>
#include <vector>

namespace larklane::tools {

/// python/larklane/tune/command.py measures, and comes back with `--from SAMPLES` to have the file
/// written.
/// @param words  the words behind `tune`
/// @return the exit status, after a message; nothing if Python has taken over
int tune(const std::vector<std::string>& words);

}  // namespace larklane::tools
