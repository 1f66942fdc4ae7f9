#pragma once
// Which host a process runs on. Thread safety: thread-safe.

#include <string>

namespace larklane {

/// A name that the processes of one host and one network namespace share.
std::string host_id();
/// ... and of one user, with one space of process numbers: those that may reach each other's
/// memory.
std::string memory_id();

}  // namespace larklane
