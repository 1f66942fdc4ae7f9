#pragma once
// Record layouts: the header's three words, and the start of a payload that is not all the user's
// bytes. Wire layout: docs/design/protocols/messages.md, which changes in the same commit. Thread
// safety: immutable.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/context_id.hpp"
#include "base/status.hpp"
#include "larklane/completion.hpp"
#include "larklane/message.hpp"
#include "msg/packet/packet_wire.hpp"
#include "net/provider.hpp"

namespace larklane::msg {

enum class RecordKind : std::uint8_t {
  send,           ///< MatchWord; tag; -; the bytes
  send_offer,     ///< MatchWord; tag; operation there; Offered, up to kBuffersMax of them
  am,             ///< completion; tag; -; the bytes
  am_offer,       ///< completion; tag; operation there; as of send_offer
  fetched,        ///< Errc; -; operation here: the result of fetching an offer
  put,            ///< completion; tag; region; PutPlace, the bytes
  signal,         ///< completion; tag; -; number of bytes
  fetch_add,      ///< -; region; operation there; AtomicOrder
  compare_swap,   ///< -; region; operation there; AtomicOrder
  accumulate,     ///< -; region; operation there; offset, doubles
  reply,          ///< Errc; -; operation here; former value of an atomic
  ask,            ///< -; -; operation there; Asked: request to write an offer's bytes
  copy,           ///< CopyWord; region or offer here; operation there; CopyOrder
  copied,         ///< Errc; -; operation here: a copy is over
  ordinary_send,  ///< OrdinaryWord; tag; operation there if synchronous, else 0; the bytes
  ordinary,       ///< OrdinaryWord: another record of a communicator
};
inline constexpr std::uint32_t kRecordKinds = 16;

/// The first word: a kind, and 24 bits for its own use; small values if those are small.
inline constexpr std::uint32_t kKindBits = 4, kKindMask = (1u << kKindBits) - 1;
static_assert(kRecordKinds <= kKindMask + 1);
inline constexpr std::uint32_t first_word(RecordKind kind, std::uint32_t rest) noexcept {
  return static_cast<std::uint32_t>(kind) | rest << kKindBits;
}
inline constexpr std::uint32_t rest_of(const PacketHeader& header) noexcept {
  return header[0] >> kKindBits;
}
inline constexpr bool is_kind(const PacketHeader& header, RecordKind kind) noexcept {
  return (header[0] & kKindMask) == static_cast<std::uint32_t>(kind);
}

inline constexpr std::uint32_t kSpaces = 8;  ///< of each kind

/// The matching rule of a message, in a first word.
struct MatchWord {
  Match match;
  MatchSpace space;

  constexpr std::uint32_t word() const noexcept {
    return static_cast<std::uint32_t>(match) | std::uint32_t{space.number} << 2 |
           std::uint32_t{space.is_ordered} << 5;
  }
  static constexpr bool is_legal(std::uint32_t word) noexcept { return word < 1u << 6; }
  /// @pre is_legal()
  static constexpr MatchWord of(std::uint32_t word) noexcept {
    return {static_cast<Match>(word & 3),
            {static_cast<std::uint8_t>(word >> 2 & (kSpaces - 1)), word >> 5 != 0}};
  }
};

/// Records of kind `ordinary`. Of a communicator on lanes by tag the payload of each send and offer
/// begins with a Stamp.
using Stamp = std::uint64_t;
enum class OrdinaryKind : std::uint8_t {
  context,  ///< own rank; 1: on lanes by tag, else 0; Announced: from now on the number names
            ///< that communicator
  offer,    ///< tag; operation there; Offered
  close,    ///< -; -: the sender has freed it; no more records with the number
  retired,  ///< -; -: the number, of the other side, may name another one
  native_payload,  ///< reserved: the MPI carries the payload
};
/// Payload of `context`. `words`: of the offers of the sender's lane (offer_words.hpp); key 0:
/// none.
struct Announced {
  ContextId id;
  net::RemoteMemory words;
};
/// A communicator's number on the link, in a first word, beside the kind of record.
struct OrdinaryWord {
  static constexpr std::uint32_t kVariantBits = 3, kNumbersMax = 1u << 20;

  std::uint32_t number;   ///< of the sender's numbers; of `retired` the receiver's
  std::uint32_t variant;  ///< of ordinary: OrdinaryKind; of ordinary_send: 1 if synchronous

  static constexpr std::uint32_t send(std::uint32_t number, bool is_synchronous) noexcept {
    return first_word(RecordKind::ordinary_send, std::uint32_t{is_synchronous} | number << 1);
  }
  static constexpr std::uint32_t other(OrdinaryKind kind, std::uint32_t number) noexcept {
    return first_word(RecordKind::ordinary,
                      static_cast<std::uint32_t>(kind) | number << kVariantBits);
  }
  /// Of an ordinary_send.
  static constexpr OrdinaryWord of_send(const PacketHeader& header) noexcept {
    return {rest_of(header) >> 1, rest_of(header) & 1};
  }
  /// Of an ordinary.
  static constexpr OrdinaryWord of_other(const PacketHeader& header) noexcept {
    return {rest_of(header) >> kVariantBits, rest_of(header) & ((1u << kVariantBits) - 1)};
  }
  /// Of either; nothing: another record.
  static constexpr std::optional<std::uint32_t> number_in(const PacketHeader& header) noexcept {
    if (is_kind(header, RecordKind::ordinary_send)) return of_send(header).number;
    if (is_kind(header, RecordKind::ordinary)) return of_other(header).number;
    return std::nullopt;
  }
};
inline constexpr bool is_ordinary(const PacketHeader& header) noexcept {
  return is_kind(header, RecordKind::ordinary_send) || is_kind(header, RecordKind::ordinary);
}
/// Is it a record that offers bytes?
inline constexpr bool is_offer(const PacketHeader& header) noexcept {
  return is_kind(header, RecordKind::send_offer) || is_kind(header, RecordKind::am_offer) ||
         (is_kind(header, RecordKind::ordinary) &&
          OrdinaryWord::of_other(header).variant ==
              static_cast<std::uint32_t>(OrdinaryKind::offer));
}

/// Bytes at the sender, for the receiver to fetch.
struct Offered {
  std::uint64_t bytes;
  net::RemoteMemory memory;
};
/// A message to be fetched, in pieces.
struct Offer {
  std::array<Offered, kBuffersMax> pieces;
  std::uint32_t count;
  std::uint64_t bytes;  ///< of all pieces

  std::span<const std::byte> payload() const noexcept {
    return std::as_bytes(std::span(pieces).first(count));
  }
  /// Nothing: malformed.
  static std::optional<Offer> of(std::span<const std::byte> payload) noexcept {
    Offer offer{};
    if (payload.empty() || payload.size() % sizeof(Offered) != 0 ||
        payload.size() > sizeof offer.pieces)
      return std::nullopt;
    std::memcpy(offer.pieces.data(), payload.data(), payload.size());
    offer.count = static_cast<std::uint32_t>(payload.size() / sizeof(Offered));
    for (const Offered& piece : std::span(offer.pieces).first(offer.count)) {
      if (piece.bytes > UINT64_MAX - offer.bytes) return std::nullopt;
      offer.bytes += piece.bytes;
    }
    return offer;
  }
};
/// Target for the bytes of an offer.
struct Asked {
  net::RemoteMemory to;
  std::uint32_t offer;  ///< the operation here
  std::uint32_t unused = 0;
};
/// Direction and subject of a copy, in a first word.
struct CopyWord {
  bool is_write;  ///< into the memory here; else from it
  bool is_offer;  ///< else of a region

  constexpr std::uint32_t word() const noexcept {
    return std::uint32_t{is_write} | std::uint32_t{is_offer} << 1;
  }
  static constexpr bool is_legal(std::uint32_t word) noexcept { return word < 3; }
  static constexpr CopyWord of(std::uint32_t word) noexcept {
    return {(word & 1) != 0, (word & 2) != 0};
  }
};
/// A copy by the owner, between its bytes and memory of the asking side that it maps.
struct CopyOrder {
  std::uint64_t offset, bytes;
  net::RemoteMemory buffer;
};
struct PutPlace {
  std::uint64_t offset;
};
struct AtomicOrder {
  std::uint64_t offset, value, expected;
};

/// @param code  as a peer sent it: any value
inline Status status_of(std::uint32_t code) noexcept {
  return code <= static_cast<std::uint32_t>(Errc::kBadOption) ? Status(static_cast<Errc>(code))
                                                              : Status(Errc::kProtocol);
}

/// The front of `payload`. Nothing: it is shorter.
template <class T>
std::optional<T> front_of(std::span<const std::byte> payload) noexcept {
  if (payload.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

}  // namespace larklane::msg
