#pragma once
// Ranks, for people. Thread safety: thread-safe.

#include <string>
#include <vector>

namespace larklane {

/// `2, 5-7`
std::string ranks_text(const std::vector<int>& ascending);

}  // namespace larklane
