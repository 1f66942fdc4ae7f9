#pragma once
// Delays recorded elsewhere, as a file: {"delays_ns": [[thread 0, thread 1, ...], ...]}, one row a
// round. `larklane report --delays` writes such files from profiles.

#include <string>
#include <vector>

namespace larklane::bench {

/// @return [rounds][threads] nanoseconds; *error names file and reason if it can't be used
std::vector<std::vector<double>> read_delay_trace(const std::string& path, std::string* error);

}  // namespace larklane::bench
