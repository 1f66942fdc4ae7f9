#pragma once
// Which ways of moving bytes this machine allows, found by trying. Thread safety: single-owner
// (forks).

#include <string>
#include <vector>

namespace larklane::tools {

struct Ability {
  std::string name;  ///< "shm slots", "shm attach read", ...
  bool available = false;
  std::string note;  ///< why not, and what would help; or a fact worth knowing
};

/// Takes a few milliseconds and leaves nothing behind.
std::vector<Ability> probe();

}  // namespace larklane::tools
