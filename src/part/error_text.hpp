#pragma once
// Texts of errors, for users.

#include <string>

#include "base/status.hpp"
#include "part/records.hpp"
#include "part/request.hpp"

namespace larklane::part {

/// A pair for error texts: partitions, bytes, tag, source.
std::string describe(const InitArgs& args, Kind kind);
/// The reason why the peer has failed; never ok.
Status status_of(const record::Fail& fail);
/// The text of a peer's failure report.
/// @param cause  for users; empty: its code and errno
std::string reported(const InitArgs& args, Kind kind, const record::Fail& fail,
                     const std::string& cause = {});

}  // namespace larklane::part
