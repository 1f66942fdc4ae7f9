#pragma once
// What a process tells the others of its world before anybody can talk to it. No MPI call.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/siphash.hpp"
#include "control/address.hpp"

namespace larklane::mpi {

/// Thread safety: immutable.
struct HostCard {
  std::uint64_t host = 0;  ///< equal: they reach each other's local sockets
  Secret secret{};
  control::Address address;           ///< remote; empty: it can't be reached from other hosts
  std::vector<std::string> networks;  ///< net::Limits::network of those that it has opened

  /// One word of at most 800 bytes. Begins with Larklane's version.
  std::string text() const;
  /// Nothing if the text is not of that form, or of another version.
  static std::optional<HostCard> of_text(std::string_view text);

  bool has(std::string_view network) const;
};

/// Of the process's host, as far as abstract sockets reach: boot and network namespace.
std::uint64_t this_host();

/// By which network processes of different hosts go: the one that most of them have, of several the
/// first in the alphabet, but `verbs` before all. Everybody computes it from the same cards.
/// @param cards  by rank; nothing: runs without Larklane
std::string common_network(const std::vector<std::optional<HostCard>>& cards);

}  // namespace larklane::mpi
