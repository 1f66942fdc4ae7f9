#pragma once
// `larklane info --peer`: the way by which a pair of processes goes, and why. Thread safety:
// single-owner.

#include <string>

#include "base/config.hpp"

namespace larklane::tools {

/// Facts about pairs with one peer.
struct PeerFacts {
  std::string asked;    ///< a rank, or a host's name or address
  std::string where;    ///< "this process", "this host", "another host" or "not known"
  std::string why;      ///< of `where`
  std::string goes_by;  ///< "shared memory", a network as in LARKLANE_PROVIDER, "the MPI", "an MPI
                        ///< error" or "not known"
  std::string reason;   ///< of `goes_by`: skipped ways, and conditions
  std::string change;   ///< how it is changed
  bool is_told = true;  ///< false: another process of the same launcher says it
};

/// Under a launcher all processes ask together, and one of them tells.
/// @param[out] problem  of an impossible peer: the error in `asked`; else empty
PeerFacts find_peer(const std::string& asked, const Config& config, const std::string& folder,
                    std::string* problem);

}  // namespace larklane::tools
