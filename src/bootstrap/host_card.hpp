#pragma once
// The card of a process: how the other processes of its job reach it. MPI programs and native
// programs have the same card. Every board carries it as text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.hpp"
#include "base/siphash.hpp"

namespace larklane::boot {

/// Thread safety: immutable.
struct HostCard {
  std::uint64_t host = 0;  ///< equal, and of one user: they reach each other's local sockets
  std::uint32_t user = 0;  ///< as the process sees its own user
  Secret secret{};
  Address address;  ///< remote; empty: other hosts can't reach the process
  Address local;    ///< empty: it follows from job and rank
  /// net::Limits::network of each provider that the process has opened, the preferred first.
  std::vector<std::string> networks;
  static constexpr std::size_t kNetworksMax = 4;
  bool uses_them_here = false;  ///< networks carry pairs on one host, too
  bool declines = false;        ///< the process leaves all pairs to the MPI, and warns why

  /// One word that begins with Larklane's version.
  std::string text() const;
  /// Nothing if the text has another form or another version.
  static std::optional<HostCard> of_text(std::string_view text);

  bool has(std::string_view network) const;
};

/// Identifies the process's host, as far as abstract sockets reach: by boot and network namespace.
std::uint64_t this_host();

/// The network of a pair of processes. The lower rank's preference list decides: its first network
/// that the higher rank also has. Empty: they share none, or run on one host and not both use
/// networks there. Both sides compute it from their cards.
std::string network_between(const HostCard& lower, const HostCard& higher);

}  // namespace larklane::boot
