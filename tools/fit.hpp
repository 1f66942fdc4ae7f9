#pragma once
// `larklane model --fit`: LogGP of the figures of `larklane bench prtt`. Thread safety:
// single-owner.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/loggp.hpp"

namespace larklane::tools {

/// Prints the parameters of each run and way, by range of sizes, with 95 % intervals.
/// @param path  a record of one launch, or a set of them (bench.json)
/// @return the exit status, after a message
int fit(const std::string& path);

/// The figures that a run of `bench prtt` has measured of a way, without the wrong ones.
/// @throws nlohmann::json::exception if something is missing
std::vector<larklane::model::Trains> trains_of(const nlohmann::json& run, const std::string& way);

}  // namespace larklane::tools
