#pragma once
// How a TCP connection begins. Both sides prove that they know the job's secret, then records
// follow as on one host (wire.hpp), without descriptors. Hosts have one byte order: another one
// is noticed by the magic.
//
//   who accepted   Challenge  ->
//                             <-  RemoteHello   who connected
//   who accepted   Answer     ->
//                             <-  records
//
// This keeps out everybody who can reach the port and is not of the job: other jobs, other users,
// port scanners, and ourselves where an address means another process than we thought. A proof is
// of no use twice, since both sides have put a random number into it. It does not keep out who can
// read or change what travels between the hosts: records are neither encrypted nor signed, as the
// data itself is not.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/siphash.hpp"
#include "control/plane/address.hpp"
#include "control/plane/wire.hpp"

namespace larklane::control {

using Nonce = std::array<std::uint64_t, 2>;

/// Every version starts with magic and version.
struct Challenge {
  std::uint32_t magic = kWireMagic;
  std::uint32_t version = kProtocolVersion;
  std::uint64_t identity = 0;  ///< identity_of() the address of who accepted
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

std::uint64_t identity_of(const Secret& secret, const Address& address);
/// @param hello  its own `proof` does not count
std::uint64_t proof_of(const Secret& secret, const Challenge& challenge, const RemoteHello& hello);
/// The answer's. @param hello  that it answers
std::uint64_t answer_to(const Secret& secret, const Challenge& challenge, const RemoteHello& hello);

}  // namespace larklane::control
