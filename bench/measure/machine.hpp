#pragma once
// Description of the measuring machine.

#include <map>
#include <string>

namespace larklane::bench {

/// cpu, cores, sockets, kernel, governor, turbo: "unknown" where the system does not report it.
std::map<std::string, std::string> machine();
/// The part after the last '/' of a path: folders may contain the user's name.
std::string base_name(const std::string& text);
/// LARKLANE_*, OMP_*, LCI_ATTR_*, as they are set; of a path only the base name.
std::map<std::string, std::string> listed_environment();
/// Processors that this process may use: "0-3,8".
std::string binding();

}  // namespace larklane::bench
