#pragma once
// Where the tuning of this host lies: the one part of this layer that looks at the machine.
// Thread safety: thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "model/tuning.hpp"

namespace larklane::model {

inline constexpr std::string_view kShmFabric = "shm";

HostType this_host();

/// Below $XDG_CONFIG_HOME or ~/.config; empty: neither is set.
std::string default_tuning_path(std::string_view fabric, const HostType& host);

struct TuningFile {
  std::string path;              ///< where it was looked for; empty: nowhere
  std::optional<Tuning> tuning;  ///< if it is there and of this host and fabric
  std::string problem;  ///< for people: why it is ignored, with file, line and remedy; or empty
  bool is_of_another_fabric = false;  ///< that is the problem
};
/// @param option  the option `tuning`. A file that it names has to be there
TuningFile find_tuning(const std::string& option, std::string_view fabric, const HostType& host);

}  // namespace larklane::model
