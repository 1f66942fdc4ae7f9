#pragma once
// Which host a process runs on. Thread safety: thread-safe.

#include <string>

namespace larklane {

/// What the processes of one host, and of one network namespace, have in common.
std::string host_id();
/// ... and of one user, who see each other by number: those that may reach each other's memory.
std::string memory_id();

}  // namespace larklane
