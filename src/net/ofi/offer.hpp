#pragma once
// An endpoint's offer to its peers: libfabric's address, behind a few bytes of our own that
// distinguish it from anything else. It comes from outside: nothing in it is believed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"

namespace larklane::ofi {

/// A secret that only the peer gets, by the control plane: the content of a request for a
/// connection, and of its answer. Zeros where links have none of their own.
struct Ticket {
  using Word = std::array<std::byte, 16>;
  Word request{}, answer{};
};

struct Offer {
  Ticket ticket;
  /// Padded with zeros: libfabric is told no length and reads as much as an address may have.
  std::vector<std::byte> address;
};

/// @param address_format  libfabric's FI_SOCKADDR_IN, FI_ADDR_STR, ...
std::vector<std::byte> encode_offer(std::uint32_t address_format, const Ticket& ticket,
                                    std::span<const std::byte> address);
/// @param own  the offer of the endpoint that is to connect: a peer's address looks like its own
/// @errors kProtocol: not made by encode_offer, of another kind of address; kVersion
Result<Offer> decode_offer(std::span<const std::byte> bytes, std::span<const std::byte> own);

}  // namespace larklane::ofi
