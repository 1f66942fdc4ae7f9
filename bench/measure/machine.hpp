#pragma once
// The machine that measures.

#include <map>
#include <string>

namespace larklane::bench {

/// cpu, cores, sockets, kernel, governor, turbo: "unknown" where the machine does not tell.
std::map<std::string, std::string> machine();
/// What stands behind the last '/' of a path: folders may name the user.
std::string base_name(const std::string& text);
/// LARKLANE_*, OMP_* as they are set, of paths the base name.
std::map<std::string, std::string> listed_environment();
/// Processors that this process may use: "0-3,8".
std::string binding();

}  // namespace larklane::bench
