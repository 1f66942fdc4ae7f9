#pragma once
// Which ways of moving bytes this machine allows, found by trying. Thread safety: single-owner
// (forks).

#include <string>
#include <vector>

#include "base/config.hpp"

namespace larklane::tools {

struct Ability {
  std::string name;  ///< "shm slots", "shm attach read", ...
  bool available = false;
  std::string note;  ///< why not, and the remedy; or a fact worth knowing
};

/// Takes a tenth of a second, most of it for the networks, and leaves nothing behind.
/// @param folder  of the libraries: network providers lie there
std::vector<Ability> probe(const std::string& folder, const Config& config);
/// How many lanes a network would have, and how they would be shared.
std::string describe_lanes(const Config& config);

}  // namespace larklane::tools
