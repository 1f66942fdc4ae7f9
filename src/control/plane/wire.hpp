#pragma once
// What travels on a control connection: one Hello, then records. Same host, so native byte order.
// Between hosts the records are these, and what comes before them is remote_wire.hpp's.
// A change of anything here but what the comment of Hello promises raises kProtocolVersion.

#include <array>
#include <cstddef>
#include <cstdint>

#include "control/plane/plane.hpp"

namespace larklane::control {

inline constexpr std::uint32_t kWireMagic = 0x6b'72'61'6c;  // "lark"
inline constexpr std::uint32_t kProtocolVersion = 9;
inline constexpr std::size_t kAddressesMax = 4;  ///< names of one process

using WireAddress = std::array<char, kAddressBytes>;  // ends in NUL

/// First thing on every connection. Every version starts with the members up to and including the
/// first address, so that two versions can still name each other.
struct Hello {
  std::uint32_t magic = kWireMagic;
  std::uint32_t version = kProtocolVersion;
  std::uint64_t nonce = 0;  ///< of this life of this process's plane; not 0
  std::int32_t pid = 0;     ///< in its own pid namespace: for messages only
  std::uint32_t address_count = 0;
  std::array<WireAddress, kAddressesMax> addresses{};
};
inline constexpr std::size_t kHelloPrefixBytes = offsetof(Hello, addresses) + kAddressBytes;
static_assert(sizeof(Hello) == 24 + kAddressesMax * kAddressBytes);

/// To the process that has connected, before its connection is closed without a word of it having
/// been lost: what it could send has been taken, and the rest is to come on another connection.
inline constexpr std::uint32_t kComeAgain = 0x6e'69'67'61;  // "agin"

/// Before each payload; header and payload are padded to kRecordAlign, so that payloads are aligned
/// where they are read.
struct RecordHeader {
  std::uint32_t magic = kWireMagic;
  std::uint32_t payload_bytes = 0;
  std::uint16_t kind = 0;
  std::uint16_t fd_count = 0;  ///< attached to the record's first byte
  std::uint32_t zero = 0;
};
static_assert(sizeof(RecordHeader) == 16);

inline constexpr std::size_t kRecordAlign = 8;
constexpr std::size_t record_bytes(std::size_t payload_bytes) noexcept {
  return (sizeof(RecordHeader) + payload_bytes + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
}

}  // namespace larklane::control
