#pragma once
// What is in flight: a post that is not over, or a message that has come and waits for its receive.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "larklane/context.hpp"
#include "msg/completion/node.hpp"
#include "msg/completion/object.hpp"
#include "msg/match/match.hpp"
#include "msg/protocol/wire.hpp"
#include "net/provider.hpp"
#include "vci/work.hpp"

namespace larklane::msg {

class Connection;
class MessageLane;
class Packet;
struct Operation;

/// One of its parts, as others see it: leads back to the whole.
template <class T>
struct PartOf : T {
  Operation* whole = nullptr;
};

/// From post or arrival to its completion, which travels in it. The lane's pool makes it once; who
/// takes one sets what it needs.
/// Thread safety: single-owner, by turns: its poster, the engine that it waits in, the lane.
struct Operation : Node {
  /// What remains to be done when its record is out.
  enum class Then : std::uint8_t {
    finish,         ///< with an error if the record can't go out
    finish_anyway,  ///< as its completion says: the record is for the peer only
    await,          ///< an answer
    transfer,       ///< it is no record: its work goes out
    gather,         ///< finish: its payload lies in `buffers`
    post_packet,    ///< finish: its payload lies in `packet`
  };

  Object* object = nullptr;  ///< null: nobody is told
  MessageLane* lane = nullptr;
  Connection* connection = nullptr;

  // Its memory: of the user, or a buffer of ours.
  std::byte* local = nullptr;
  std::uint64_t local_bytes = 0;
  PartOf<MatchReceive> receive;

  const Region* region = nullptr;     ///< the user's, that it lies in
  net::Memory* registered = nullptr;  ///< by us, for this one operation

  // A record that has to go out, and has not yet: what is ours of its payload, then the user's.
  PacketHeader header{};
  std::array<std::byte, 32> small{};
  std::uint32_t small_bytes = 0;
  std::span<const std::byte> payload;
  Then then = Then::finish;

  std::uint32_t awaited = 0;     ///< its number among those that wait for an answer; 0: it does not
  std::uint32_t there = 0;       ///< of the peer's operation that waits for ours
  RemoteCompletion signals = 0;  ///< when its transfer is over: that object of the peer's
  std::uint64_t* before = nullptr;  ///< where an atomic's answer goes
  std::uint64_t region_offset = 0;  ///< of a put or get
  std::uint64_t bytes_copied = 0;   ///< of a piece that its owner copies
  bool is_offer = false;            ///< a message whose bytes are still at the sender
  bool is_bounced = false;          ///< `registered` is of a bounce buffer
  bool is_lent = false;             ///< `registered` is lent to the peer, which copies
  bool is_dynamic = false;          ///< `local` is a buffer of ours, for an active message

  PartOf<MatchMessage> message;
  /// Of a message: who comes second, its receive or its bytes, does the rest. Null; the receive; or
  /// message_is_here().
  std::atomic<Operation*> met{nullptr};
  PartOf<vci::Work> work;

  // A message of several pieces.
  std::uint32_t pieces_posted = 0;  ///< of a transfer, which moves one after the other
  std::uint32_t buffer_count = 0;
  union {
    Offer offer;                              ///< of the one that fetches, or tells
    std::array<Buffer, kBuffersMax> buffers;  ///< of a record
    Packet* packet;                           ///< the user's, until it is posted
  };

  Operation() noexcept : offer{} { receive.whole = message.whole = work.whole = this; }
  static Operation* message_is_here() noexcept {
    return reinterpret_cast<Operation*>(std::uintptr_t{1});
  }

  /// @pre no more than kBuffersMax
  void set_buffers(std::span<const Buffer> all) noexcept {
    std::array<Buffer, kBuffersMax> copied;
    std::copy(all.begin(), all.end(), copied.begin());
    std::construct_at(&buffers, copied);
    buffer_count = static_cast<std::uint32_t>(all.size());
  }
  template <class T>
  void set_small(const T& value) noexcept {
    static_assert(sizeof(T) <= sizeof small);
    std::memcpy(small.data(), &value, sizeof value);
    small_bytes = sizeof value;
  }
};

/// Nobody answers it.
constexpr bool is_over_when_out(Operation::Then then) noexcept {
  return then != Operation::Then::await && then != Operation::Then::transfer;
}

}  // namespace larklane::msg
