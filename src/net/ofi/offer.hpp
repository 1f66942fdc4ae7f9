#pragma once
// What an endpoint tells its peers: libfabric's address, behind a few bytes of our own that tell it
// from anything else. It comes from outside: nothing in it is believed.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"

namespace larklane::ofi {

/// Where an offer comes from, and what can be reached there.
struct Origin {
  std::uint32_t address_format;  ///< libfabric's FI_SOCKADDR_IN, FI_ADDR_STR, ...
  std::uint64_t host;            ///< this_host() of the process
  pid_t process;
};

/// What only the peer is told, by the control plane: what a request for a connection has to carry,
/// and its answer. Zeros where links have none of their own.
struct Ticket {
  using Word = std::array<std::byte, 16>;
  Word request{}, answer{};
};

struct Offer {
  Origin origin;
  Ticket ticket;
  /// Padded with zeros: libfabric is told no length and reads as much as an address may have.
  std::vector<std::byte> address;
};

/// The same for all processes of a host since its last start, 0: not known.
std::uint64_t this_host();

std::vector<std::byte> encode_offer(const Origin& origin, const Ticket& ticket,
                                    std::span<const std::byte> address);
/// @param own  the offer of the endpoint that is to connect: a peer's address looks like its own
/// @errors kProtocol: not made by encode_offer, of another kind of address; kVersion
Result<Offer> decode_offer(std::span<const std::byte> bytes, std::span<const std::byte> own);

}  // namespace larklane::ofi
