#pragma once
// The first messages of a TCP connection. Both sides prove that they know the job's secret, then
// records follow as on one host (wire.hpp), without descriptors. Hosts have one byte order: the
// magic detects another.
//
//   acceptor   Challenge  ->
//                         <-  RemoteHello   connector
//   acceptor   Answer     ->
//                         <-  records
//
// The proofs: base/handshake.hpp.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/address.hpp"
#include "base/handshake.hpp"
#include "control/plane/wire.hpp"

namespace larklane::control {

/// Every version starts with magic and version.
struct Challenge {
  std::uint32_t magic = kWireMagic;
  std::uint32_t version = kProtocolVersion;
  std::uint64_t identity = 0;  ///< identity_of() the acceptor's address
  Nonce nonce{};
};
static_assert(sizeof(Challenge) == 32);

/// Every version starts with magic and version.
struct RemoteHello {
  std::uint32_t magic = kWireMagic;
  std::uint32_t version = kProtocolVersion;
  std::uint64_t life = 0;  ///< as Hello::nonce, but never the same number
  Nonce nonce{};
  std::int32_t pid = 0;  ///< for messages only
  std::uint32_t address_bytes = 0;
  std::array<char, kRemoteAddressBytes> address{};  ///< ends in NUL
  std::uint64_t proof = 0;
};
static_assert(sizeof(RemoteHello) == 48 + kRemoteAddressBytes);

struct Answer {
  std::uint32_t magic = kWireMagic;
  std::uint32_t zero = 0;
  std::uint64_t proof = 0;
};
static_assert(sizeof(Answer) == 16);

}  // namespace larklane::control
