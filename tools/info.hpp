#pragma once
// `larklane info`: the abilities of this installation on this machine. Thread safety: single-owner.

#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "crossover.hpp"
#include "model/tuning_file.hpp"
#include "peer.hpp"
#include "place.hpp"
#include "probe.hpp"

namespace larklane::tools {

struct InfoRequest {
  bool options_only = false;
  bool json = false;
  std::string peer;  ///< only facts about pairs with it; empty: everything
};

struct Family {
  std::string name, title;
  std::string library;  ///< empty: not built
};

/// A row of base/p2p_auto.def: worlds in which `p2p = auto` gives ordinary messages to Larklane.
struct OwnedByAuto {
  std::string mpi, thread_level, hosts;
  std::string record;  ///< the measurement that shows the gain
};

/// Everything that is shown, however it is shown.
struct Facts {
  bool options_only = false;
  std::string folder;  ///< of the libraries
  std::vector<Family> families;
  std::string mpi;  ///< the value of LARKLANE_MPI; empty if it is not set
  std::vector<Ability> abilities;
  std::vector<OwnedByAuto> owned_by_auto;
  std::string lanes;
  std::optional<PeerFacts> peer;  ///< then of the rest only `abilities`
  Crossover crossover;
  larklane::model::HostType host;
  larklane::model::TuningFile tuning;
  Config config;
  std::vector<Config::Problem> problems;
};

/// @return exit status: 0, or 2 if an option has a wrong value (everything is printed all the same)
int info(const InfoRequest& request);

/// In info_json.cpp, because nlohmann-json is slow to compile.
std::string to_json(const Facts& facts);
/// "default", "file", "environment" or "program".
const char* source_name(Config::Source source);

}  // namespace larklane::tools
