#pragma once
// Messages: send and receive with matching, active messages, put and get with or without a signal,
// atomics. Each post names a lane and the object that receives its completion.
//
// After an error nothing has happened, and posting again would not help. Later errors are in the
// completion, with the rank. A `done` operation reports no later error, though its message may be
// lost if the peer dies. No call here blocks, polls, or makes progress.
//
// Locks: a `done` post takes no lock except one try of its lane's. A `posted` one, and a receive,
// also take spin locks of the lane's pool and tables, each for some instructions (a thread that
// finds one held yields), those of an ordered space, and the locks of registering memory that lies
// in no region. The tables grow by allocations.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "larklane/completion.hpp"
#include "larklane/context.hpp"
#include "larklane/export.h"
#include "larklane/status.hpp"

namespace larklane {

/// State of an operation when its post returns.
enum class Post : std::uint8_t {
  done,    ///< over; the object is not signalled
  posted,  ///< in flight; the object will be signalled, once
  retry    ///< nothing has happened: make progress, and post again
};

/// The fields in which a receive and a message must agree. A message matches receives of its own
/// policy only, in its own space. Messages to one process over one lane match in the order of their
/// posts, if one thread posts them or the posting threads synchronise.
enum class Match : std::uint8_t { rank_tag, rank, tag, none };

/// A space of matching. A receive of an ordered space may name any rank or any tag, independent of
/// the sender's policy: MPI's rules. An ordered space costs a lock for the whole space.
struct MatchSpace {
  std::uint8_t number = 0;  ///< 0..7; ordered and other spaces are numbered separately
  bool is_ordered = false;  ///< MPI's matching order
};

/// Options of all posts. Thread safety: immutable.
struct PostOptions {
  /// Receives the completion. Null: there is none, so a failure is not reported either. Receives,
  /// gets and atomics with a result refuse null: the program could not tell when the library has
  /// finished writing its memory.
  const CompletionObject* completion = nullptr;
  void* user_context = nullptr;  ///< comes back in the completion
  /// The region that holds the local memory, which is then not registered again; otherwise the post
  /// is refused. Null: the library registers memory as needed.
  const Region* region = nullptr;
  /// Never `done`: the object is signalled in any case.
  bool signals_always = false;
  /// `retry` only if there is no memory for the operation: the lane keeps it and posts it as soon
  /// as it can. The buffer stays the library's until the completion.
  bool queues = false;
  /// More posts over this lane follow at once. A short message or active message (not a Packet) may
  /// wait for them and travel in one write with those to the same process. It waits until a send
  /// without this option leaves over the lane, or until any thread makes progress on the lane
  /// (Vci::progress()). Receives, refused posts and posts that wait do not end the delay. Order,
  /// `done` and `retry` are as without the option. It pays where a post costs more than a copy,
  /// over `ofi` and `verbs`; over `shm`, and with the two options above, it changes nothing.
  bool more_follow = false;
};

/// @defgroup posts Posts in C++
/// Rules of every post, unless its description says otherwise.
///
/// `vci`: the lane; `rank`: the peer's, this process's own is legal; `tag`: compared by a receive,
/// or passed on; `buffer`: `bytes` contiguous bytes of host memory; `offset`: in bytes, into
/// `region` of the peer.
///
/// @return  state of the operation
/// @errors  kInvalidArgument: rank, buffer, space, region; kPeerDown and others: the peer can't be
///          reached
/// @threads thread-safe
/// @owns    posted: until the completion the caller does not write a buffer that is sent, and does
///          not access one that is received into
/// @{

/// Send a message.
///
/// @param bytes    any length. Up to Vci::eager_bytes_max() they are copied: `done`, and the buffer
///                 is the caller's again. A longer message may go straight from the buffer to the
///                 receive, once one is posted
LARKLANE_API Result<Post> post_send(Vci& vci, int rank, std::uint32_t tag, const void* buffer,
                                    std::uint64_t bytes, const PostOptions& options = {},
                                    Match match = {}, MatchSpace space = {}) noexcept;

/// One of several buffers of a message. Thread safety: immutable.
struct Buffer {
  const void* start = nullptr;  ///< first byte, host memory
  std::uint64_t bytes = 0;      ///< 0 is legal
};
/// Most buffers of one message.
inline constexpr std::size_t kBuffersMax = 8;

/// Send the contents of several buffers as one message, in the order of `buffers`. The receiver
/// sees one message.
///
/// @param buffers  kBuffersMax at most; the list is the caller's again when the call returns. Up to
///                 Vci::eager_bytes_max() bytes in all are copied into the packet. Longer messages
///                 go straight from each buffer, one after the other; with PostOptions::region all
///                 of them lie in it. The completion names the first
/// @errors  kInvalidArgument: too many buffers, or more bytes than 64 bits count; those of
///          post_send() of one buffer
/// @cost    a short message: as one buffer, and a copy of each; no allocation
LARKLANE_API Result<Post> post_send(Vci& vci, int rank, std::uint32_t tag,
                                    std::span<const Buffer> buffers,
                                    const PostOptions& options = {}, Match match = {},
                                    MatchSpace space = {}) noexcept;

/// Memory of a lane for one short message. The program writes the message there; posting makes no
/// further copy. A lane has 224 packets for programs, and a reserve of its own: other posts go on
/// when programs hold all 224. Thread safety: single-owner. Destroyed before the context, it gives
/// the memory back.
class LARKLANE_API Packet {
 public:
  Packet() noexcept = default;  ///< empty
  /// Leaves `other` empty.
  Packet(Packet&& other) noexcept
      : lane_(other.lane_),
        number_(std::exchange(other.number_, 0)),
        start_(std::exchange(other.start_, nullptr)) {}
  /// Gives the former packet back.
  Packet& operator=(Packet&& other) noexcept {
    Packet taken(std::move(other));
    std::swap(lane_, taken.lane_);
    std::swap(number_, taken.number_);
    std::swap(start_, taken.start_);
    return *this;
  }
  ~Packet();  ///< gives the packet back

  /// Room for the message: Vci::packet_bytes_max() bytes, aligned to 8. Null: the handle is empty,
  /// since no packet was free, or it has been posted.
  void* start() const noexcept { return start_; }
  /// Not empty?
  explicit operator bool() const noexcept { return start_ != nullptr; }

  Packet(msg::MessageLane& lane, std::uint64_t number, void* start) noexcept  ///< the library's
      : lane_(&lane), number_(number), start_(start) {}
  msg::MessageLane* lane() const noexcept { return lane_; }  ///< the library's
  std::uint64_t number() const noexcept { return number_; }  ///< the library's
  void forget() noexcept { number_ = 0, start_ = nullptr; }  ///< the library's

 private:
  msg::MessageLane* lane_ = nullptr;
  std::uint64_t number_ = 0;
  void* start_ = nullptr;
};

/// Take a packet of a lane.
///
/// @return  empty: programs hold all of them; make progress, and call again
/// @threads thread-safe
/// @cost    one atomic exchange; no allocation, no lock
LARKLANE_API Packet take_packet(Vci& vci) noexcept;

/// Send the first `bytes` bytes of `packet`. The receiver sees an ordinary message.
///
/// @param packet   from the lane of `vci`. After `done` and `posted` it is the library's, and the
///                 handle is empty. After `retry` and errors it is still the caller's, unchanged
/// @param bytes    Vci::packet_bytes_max() at most
/// @errors  kInvalidArgument: an empty packet, or another lane's; too many bytes; those of
///          post_send() of one buffer
/// @cost    as post_send() of one buffer, without the copy
LARKLANE_API Result<Post> post_send(Vci& vci, int rank, std::uint32_t tag, Packet& packet,
                                    std::uint64_t bytes, const PostOptions& options = {},
                                    Match match = {}, MatchSpace space = {}) noexcept;

/// Receive a message. If it is longer than `bytes`, the receive completes with kSizeMismatch and
/// the message's length; the buffer is undefined.
///
/// @param rank     of the source; ignored by Match::tag and none
/// @param tag      of the message; ignored by Match::rank and none
/// @param options  must name a completion object
/// @param[out] done  completion of a `done` receive. Null: the object is signalled instead
/// @errors  kInvalidArgument: rank, buffer, space
/// @owns    posted: the buffer is the library's until the completion
LARKLANE_API Result<Post> post_recv(Vci& vci, int rank, std::uint32_t tag, void* buffer,
                                    std::uint64_t bytes, const PostOptions& options,
                                    Completion* done = nullptr, Match match = {},
                                    MatchSpace space = {}) noexcept;

/// Send an active message: a put whose target is allocated on arrival. Object `there` of the peer
/// is signalled with the bytes, in newly allocated memory (Completion::buffer), with the rank of
/// this process and the tag. If the peer has deregistered the object, the message is lost; a long
/// one then completes here with the error.
///
/// @param there    number of the peer's object
LARKLANE_API Result<Post> post_am(Vci& vci, int rank, RemoteCompletion there, std::uint32_t tag,
                                  const void* buffer, std::uint64_t bytes,
                                  const PostOptions& options = {}) noexcept;
/// Send an active message from several buffers; rules as post_send() of several.
LARKLANE_API Result<Post> post_am(Vci& vci, int rank, RemoteCompletion there, std::uint32_t tag,
                                  std::span<const Buffer> buffers,
                                  const PostOptions& options = {}) noexcept;
/// Send a packet as an active message; rules as post_send() of a packet.
LARKLANE_API Result<Post> post_am(Vci& vci, int rank, RemoteCompletion there, std::uint32_t tag,
                                  Packet& packet, std::uint64_t bytes,
                                  const PostOptions& options = {}) noexcept;
/// Free the buffer of an active message, legal even after the context is destroyed. Null is legal.
/// Thread-safe.
LARKLANE_API void free_buffer(void* buffer) noexcept;

/// Write `bytes` bytes at `offset` of `region`. Puts are not ordered among each other. The
/// completion returns the buffer to the caller. The peer learns that the bytes have arrived by the
/// signal, or by a message posted to it over the same lane after the completion.
///
/// @param there    not 0: this object of the peer is signalled on arrival, with the rank of this
///                 process, the tag and the number of bytes
/// @errors  kInvalidArgument: outside of the region; those of post_send()
LARKLANE_API Result<Post> post_put(Vci& vci, const RemoteRegion& region, std::uint64_t offset,
                                   const void* buffer, std::uint64_t bytes,
                                   const PostOptions& options, RemoteCompletion there = 0,
                                   std::uint32_t tag = 0) noexcept;
/// Read `bytes` bytes from `offset` of `region` into `buffer`. Object `there` of the peer, if not
/// 0, is signalled when they have been read. Errors and threads as post_put().
LARKLANE_API Result<Post> post_get(Vci& vci, const RemoteRegion& region, std::uint64_t offset,
                                   void* buffer, std::uint64_t bytes, const PostOptions& options,
                                   RemoteCompletion there = 0, std::uint32_t tag = 0) noexcept;

/// Add `value` to the 8 bytes at `offset`. Atomics on one location are atomic with respect to each
/// other, from any process, and to atomics of the owner (std::atomic_ref). Those of one thread over
/// one lane happen in its order.
///
/// @param offset       a multiple of 8
/// @param[out] before  the former value; the library's until the completion. Null: not wanted
/// @errors  as post_put(); kInvalidArgument, perhaps in the completion: no multiple of 8
LARKLANE_API Result<Post> post_fetch_add(Vci& vci, const RemoteRegion& region, std::uint64_t offset,
                                         std::uint64_t value, std::uint64_t* before,
                                         const PostOptions& options) noexcept;
/// Store `value` at `offset` if the 8 bytes there equal `expected`: then `*before` is `expected`.
/// Otherwise as post_fetch_add().
LARKLANE_API Result<Post> post_compare_swap(Vci& vci, const RemoteRegion& region,
                                            std::uint64_t offset, std::uint64_t expected,
                                            std::uint64_t value, std::uint64_t* before,
                                            const PostOptions& options) noexcept;
/// Most doubles of one post_accumulate().
inline constexpr std::uint32_t kAccumulateMax = 1020;
/// Add `count` doubles to those at `offset`. Each addition is atomic with respect to other
/// accumulates, from any process, through regions of the same context. It is not atomic with
/// respect to the atomics above, to the owner's own, or to accesses through another mapping of
/// these bytes.
///
/// @param count    kAccumulateMax at most
LARKLANE_API Result<Post> post_accumulate(Vci& vci, const RemoteRegion& region,
                                          std::uint64_t offset, const double* values,
                                          std::uint32_t count, const PostOptions& options) noexcept;

/// @}

}  // namespace larklane
