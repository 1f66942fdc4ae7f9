#pragma once
// The card of a process: how the others of its job reach it. MPI programs and native ones have the
// same; its text is the form in which every board carries it.

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
  std::uint32_t user = 0;  ///< as the process sees itself
  Secret secret{};
  Address address;  ///< remote; empty: it can't be reached from other hosts
  Address local;    ///< empty: it follows from job and rank
  /// net::Limits::network of those that it has opened, the preferred first.
  std::vector<std::string> networks;
  static constexpr std::size_t kNetworksMax = 4;
  bool uses_them_here = false;  ///< for pairs on one host, too
  bool declines = false;        ///< it leaves all pairs to the MPI, and warns why

  /// One word. Begins with Larklane's version.
  std::string text() const;
  /// Nothing if the text is not of that form, or of another version.
  static std::optional<HostCard> of_text(std::string_view text);

  bool has(std::string_view network) const;
};

/// Of the process's host, as far as abstract sockets reach: boot and network namespace.
std::uint64_t this_host();

/// By which network a pair of processes goes: the lower rank's first that the higher one has, too.
/// Empty: by none; on one host, if not both use them here. Both sides compute it from their cards.
std::string network_between(const HostCard& lower, const HostCard& higher);

}  // namespace larklane::boot
