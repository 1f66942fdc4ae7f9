#pragma once
// `larklane model --fit`: LogGP of what `larklane bench prtt` measured. Thread safety:
// single-owner.

#include <string>

namespace larklane::tools {

/// Prints the parameters of each run and way, by range of sizes, with 95 % intervals.
/// @param path  a record of one launch, or a set of them (bench.json)
/// @return the exit status, after a message
int fit(const std::string& path);

}  // namespace larklane::tools
