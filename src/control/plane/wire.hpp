#pragma once
// The wire format of a control connection: one Hello, then records. One host, so native byte order.
// Between hosts the records are the same, after the messages of remote_wire.hpp. Every change here
// raises kProtocolVersion. No change touches the layout that the comment of Hello promises.

#include <array>
#include <cstddef>
#include <cstdint>

#include "control/plane/plane.hpp"

namespace larklane::control {

inline constexpr std::uint32_t kWireMagic = 0x6b'72'61'6c;  // "lark"
inline constexpr std::uint32_t kProtocolVersion = 9;
inline constexpr std::size_t kAddressesMax = 4;  ///< names of one process

using WireAddress = std::array<char, kAddressBytes>;  // ends in NUL

/// The first message on every connection. Every version starts with the members up to and including
/// the first address, so that two versions can still name each other.
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

/// The accepting process sends it to the connecting process before it closes the connection. No
/// byte is lost: it has taken all that could be sent, and the rest comes on another connection.
inline constexpr std::uint32_t kComeAgain = 0x6e'69'67'61;  // "agin"

/// Precedes each payload. Header and payload are padded to kRecordAlign, so the receiver reads
/// aligned payloads.
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
