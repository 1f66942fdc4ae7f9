#pragma once
// An endpoint's offer to its peers: its process, and where in its memory they find it. It comes
// from outside: nothing in it is believed.
// Pure functions and looks at /proc; thread safety: thread-safe.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.hpp"

namespace larklane::shm {

/// A process, told from all others of all hosts.
struct ProcessIdentity {
  std::uint64_t host;        ///< of the kernel's start
  std::uint64_t namespace_;  ///< in which `process` is its number
  std::uint64_t start;       ///< since the host's start, in the kernel's ticks
  std::int32_t process;
  std::int32_t reserved = 0;

  friend constexpr bool operator==(const ProcessIdentity&,
                                   const ProcessIdentity&) noexcept = default;
  /// @errors kSystem: there is no /proc
  static Result<ProcessIdentity> own();
};

/// When it was started. @errors kPeerDown: it is not there, or dead and not yet waited for;
/// kUnreachable: that can't be told, for want of descriptors
Result<std::uint64_t> process_start(pid_t process);

struct NetworkOffer {
  static constexpr std::uint32_t kMagic = 0x6d68'6b6c;  // "lkhm"
  static constexpr std::uint32_t kVersion = 1;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  ProcessIdentity identity;
  std::uint64_t nonce;     ///< of the catalogue
  std::uint64_t queue;     ///< Place of the endpoint's QueueArea
  std::uint64_t endpoint;  ///< the endpoint whose number stands there
  std::int32_t catalogue_fd;
  std::uint32_t checksum = 0;  ///< of all else
};
static_assert(sizeof(NetworkOffer) == 72);

using NetworkOfferBytes = std::array<std::byte, sizeof(NetworkOffer)>;
NetworkOfferBytes write_network_offer(NetworkOffer offer) noexcept;
/// @errors kVersion; kProtocol: it makes no sense
Result<NetworkOffer> parse_network_offer(std::span<const std::byte> bytes) noexcept;

}  // namespace larklane::shm
