#pragma once
// The operation: a post in flight, or an arrived message that waits for its receive.

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
#include "msg/match/lane_order.hpp"
#include "msg/match/match.hpp"
#include "msg/protocol/wire.hpp"
#include "net/provider.hpp"
#include "vci/work.hpp"

namespace larklane::msg {

class Communicator;
class Connection;
class MessageLane;
class Packet;
struct Operation;

/// A part of an operation, for layers below: leads back to the whole.
template <class T>
struct PartOf : T {
  Operation* whole = nullptr;
};

/// Lives from post or arrival to its completion, which travels in its Node. The lane's pool
/// constructs it once; each user sets the fields that it needs.
/// Thread safety: single-owner, in turn: its poster, the matching engine, the lane.
struct Operation : Node {
  /// The next step once its record is out.
  enum class Then : std::uint8_t {
    finish,         ///< as its completion says: only the peer needs the record
    finish_anyway,  ///< as its completion says: the record is for the peer only
    await,          ///< wait for an answer
    transfer,       ///< no record: posts `work`
    gather,         ///< finish: its payload lies in `buffers`
    post_packet,    ///< finish: its payload lies in `packet`
    finish_copy,    ///< finish: its payload is a buffer of the library, `local`
    skip,           ///< finish: no record; it has taken the place of a cancelled one
  };

  Object* object = nullptr;  ///< null: no object to signal
  MessageLane* lane = nullptr;
  Connection* connection = nullptr;

  // Its memory: the user's, or a buffer of the library.
  std::byte* local = nullptr;
  std::uint64_t local_bytes = 0;
  PartOf<MatchReceive> receive;

  const Region* region = nullptr;     ///< the user's region that holds it
  net::Memory* registered = nullptr;  ///< registered for this operation alone

  // A record that is not out yet. Its payload: `small` first, then the user's bytes.
  PacketHeader header{};
  std::array<std::byte, 32> small{};
  std::uint32_t small_bytes = 0;
  std::span<const std::byte> payload;
  Then then = Then::finish;

  std::uint32_t awaited = 0;        ///< its number in the table of awaited ones; 0: not there
  std::uint32_t there = 0;          ///< number of the peer's operation that waits for this one
  RemoteCompletion signals = 0;     ///< object of the peer to signal after the transfer
  std::uint64_t* before = nullptr;  ///< receives an atomic's answer
  std::uint64_t region_offset = 0;  ///< of a put or get
  std::uint64_t bytes_copied = 0;   ///< of a piece that its owner copies
  bool is_offer = false;            ///< a message whose bytes are still at the sender
  bool is_bounced = false;          ///< `registered` is a bounce buffer's
  bool is_lent = false;             ///< `registered` is lent to the peer, which copies
  bool is_dynamic = false;          ///< `local` is a buffer of the library, for an active message

  // Of an ordinary message's pending operation.
  bool is_cancelled = false;
  enum class Role : std::uint8_t {
    receive,
    receive_on_all_lanes,  ///< its message may come on any lane
    send,
  };
  Role role = Role::receive;
  /// Does its owner poll it?
  enum class Polled : std::uint8_t {
    no,  ///< at its end it signals `object`, or returns to its home
    open,
    over,  ///< the owner may use the outcome
  };
  std::atomic<Polled> polled{Polled::no};
  std::atomic<bool> is_posted{false};  ///< it waits in the engine of `communicator`
  Communicator* communicator = nullptr;

  PartOf<MatchMessage> message;
  PartOf<LaneEntry> entry;  ///< of a message on lanes by tag
  /// Of a message: its receive and its bytes meet here, and the later of the two completes the
  /// receive. Null; the receive; or message_is_here().
  std::atomic<Operation*> met{nullptr};
  PartOf<vci::Work> work;

  // A message of several pieces.
  std::uint32_t pieces_posted = 0;  ///< by a transfer, which moves one after the other
  std::uint64_t piece_offset = 0;   ///< bytes of the last one that have been read
  std::uint32_t buffer_count = 0;
  union {
    Offer offer;                              ///< of an operation that fetches or offers
    std::array<Buffer, kBuffersMax> buffers;  ///< of a record
    Packet* packet;                           ///< the user's, until it is posted
  };

  Operation() noexcept : offer{} {
    receive.whole = message.whole = work.whole = entry.whole = this;
  }
  static Operation* message_is_here() noexcept {
    return reinterpret_cast<Operation*>(std::uintptr_t{1});
  }

  /// relaxed: the poster has set it
  bool is_polled() const noexcept { return polled.load(std::memory_order_relaxed) != Polled::no; }
  /// The last access but the owner's. release: of the bytes and the outcome; pairs with is_done().
  /// @pre is_polled()
  void end_polled() noexcept { polled.store(Polled::over, std::memory_order_release); }

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

/// No answer follows.
constexpr bool is_over_when_out(Operation::Then then) noexcept {
  return then != Operation::Then::await && then != Operation::Then::transfer;
}

}  // namespace larklane::msg
