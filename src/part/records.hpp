#pragma once
// Control records of the partitioned engine. Fixed widths, no padding: they cross process
// boundaries. Wire layout: docs/design/protocols/partitioned.md, which changes in the same commit.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "part/protocol/block.hpp"

namespace larklane::part::record {

enum class Type : std::uint16_t {
  init = 1,
  datatype = 2,
  move = 3,
  close = 4,
  fail = 5,
  map = 6,
  staging = 7,
};

/// Sender to receiver, once a channel, in the order of the Psend_init calls.
struct Init {
  std::uint64_t channel;  ///< the sender's number, never reused
  std::uint64_t context_high, context_low;
  std::int32_t source, tag;
  BlockShape shape;
  std::uint64_t segment_bytes;
  std::uint64_t block_offset;
  std::uint64_t block_generation;
  std::uint64_t send_address;
  std::uint32_t segment_id;
  std::uint32_t segment_shared;  ///< other channels use the segment too: its descriptor comes once
  std::uint64_t region_bytes;    ///< size of the region around a mapped send buffer; its descriptor
                                 ///< comes last; 0: none
  std::uint64_t region_offset;
};
static_assert(sizeof(Init) == sizeof(BlockShape) + 88);

/// Receiver to sender: a part of the receiver's typemap (Typemap::encode); `count` words follow.
struct Datatype {
  std::uint64_t channel;
  std::uint32_t words_total;
  std::uint32_t first;
  std::uint32_t count;
  std::uint32_t reserved;
};

/// Receiver to sender: the receive buffer is mapped; the record carries the region's descriptor.
struct Map {
  std::uint64_t channel;
  std::uint64_t region_bytes;
  std::uint64_t region_offset;
};

/// Sender to receiver: staging memory of as many bytes as the message; the record carries its
/// descriptor.
struct Staging {
  std::uint64_t channel;
  std::uint64_t bytes;
};

/// The other side's step on a claimed run that this side can't finish.
enum class Step : std::uint32_t {
  copy,    ///< from buffer to buffer
  pack,    ///< to the sender: into staging memory, since neither side can copy
  unpack,  ///< to the receiver: from staging memory
};

/// From a mover that can't reach the other side's memory. It hands over its claimed run; or its
/// piece of a shared copy, and with it the rest of that copy.
struct Move {
  std::uint64_t channel;
  std::uint64_t round;
  Run run;
  std::uint32_t to_receiver;
  std::uint32_t job;  ///< 0: all of `run`; else 1 + the job of `piece`
  std::uint32_t piece;
  Step step;
  std::uint64_t done;  ///< bytes of it that are already in the receive buffer
};

/// One side has freed its request.
struct Close {
  std::uint64_t channel;
  std::uint32_t by_sender;
  std::uint32_t has_rounds;  ///< the sender's: 0 if it has never been started
};

/// One side has found that the pair can't work, and moves nothing more. The other side answers with
/// the same once it moves nothing either.
struct Fail {
  std::uint64_t channel;
  std::uint32_t by_sender;
  std::int32_t code;    ///< Errc
  std::int32_t detail;  ///< errno
  std::uint32_t reserved;
  std::uint64_t bytes;  ///< kSizeMismatch: size of the failing side's buffer
};

/// Reads a record's fixed part. False if the payload is too short.
template <class T>
bool read(std::span<const std::byte> payload, T& out) noexcept {
  if (payload.size() < sizeof(T)) return false;
  std::memcpy(&out, payload.data(), sizeof(T));
  return true;
}

}  // namespace larklane::part::record
