#pragma once
// A library that is measured as a peer: opened by its file's name, never linked.

#include <span>
#include <string>

namespace larklane::bench {

/// Opens `file` for good and finds its functions.
/// @param names      of the functions
/// @param functions  [names.size()], in that order; only valid without an error
/// @return why it can't be used, with a remedy; empty if it can
std::string open_peer_library(const std::string& file, std::span<const char* const> names,
                              std::span<void*> functions);

}  // namespace larklane::bench
