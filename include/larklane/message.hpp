#pragma once
// Messages: send and receive with matching, active messages, put and get with or without a signal,
// atomics. Each names a lane, and an object that hears of its end.
//
// What a post answers is Post: done (it is over, and the object is not signalled), posted (the
// object will be signalled, once), retry (nothing has happened: make progress, and post again). An
// error: nothing has happened, and it would not help to post again. Later errors are in the
// completion, with the rank; what was `done` is not heard of again, though it may still be lost
// with its peer. No call here blocks, polls, or makes progress. What is `done` takes no lock but
// one try of its lane's. What is posted, and a receive, also takes spin locks of the lane's pool
// and tables, each for some instructions (who finds one held yields), those of an ordered space,
// and what it takes to register memory that lies in no region; the tables grow by allocations.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "larklane/completion.hpp"
#include "larklane/context.hpp"
#include "larklane/export.h"
#include "larklane/status.hpp"

namespace larklane {

enum class Post : std::uint8_t { done, posted, retry };

/// What a receive and a message must have in common. A message matches receives of its own policy
/// only, in its own space. Messages of one thread (or of two of which one knows of the other's) to
/// one process over one lane match in their order.
enum class Match : std::uint8_t { rank_tag, rank, tag, none };

/// A receive of an ordered space may name any rank or any tag, whatever the sender said: MPI's
/// rules. Costs a lock for the whole space.
struct MatchSpace {
  std::uint8_t number = 0;  ///< 0..7, of its own counting for each kind
  bool is_ordered = false;
};

/// What all posts may say. Thread safety: immutable.
struct PostOptions {
  /// Hears of the end; null: nobody, so that a failure is not heard of, either. Refused where the
  /// library would write memory of which nobody hears when it is over: receives, gets, atomics that
  /// answer.
  const CompletionObject* completion = nullptr;
  void* user_context = nullptr;  ///< comes back in the completion
  /// Local memory lies in it, or the post is refused: not registered anew. Null: the library
  /// registers what it has to.
  const Region* region = nullptr;
  /// Never `done`: the object is signalled in any case.
  bool signals_always = false;
  /// Never `retry` but for want of memory for the operation: the lane keeps it and posts it as soon
  /// as it can. The buffer stays the library's until the completion.
  bool queues = false;
  /// More posts over this lane follow at once. A short message or active message (but of a Packet)
  /// may wait for them, to go to its process together with those to the same one, in one write:
  /// until something goes out over the lane that does not say this, or a turn of the lane
  /// (Vci::progress(), by anybody). Receives don't go out, nor does what is refused or has to wait.
  /// Order, `done` and `retry` are what they are without. Worth it where a post costs more than a
  /// copy, over `ofi` and `verbs`; over `shm`, and with the two above, it changes nothing.
  bool more_follow = false;
};

/// @param bytes  any length. Up to Vci::eager_bytes_max() they are copied: `done`, and the buffer
///               is the caller's again. Longer ones may go from where they lie to the receive, once
///               it is there
/// @param rank   this process's own is legal
/// @errors  kInvalidArgument: rank, buffer, space; kPeerDown and others: there is no way to it
/// @threads thread-safe
/// @owns    posted: the buffer is not written until the completion
LARKLANE_API Result<Post> post_send(Vci& vci, int rank, std::uint32_t tag, const void* buffer,
                                    std::uint64_t bytes, const PostOptions& options = {},
                                    Match match = {}, MatchSpace space = {}) noexcept;

/// One of the buffers of a message that lies in several. Thread safety: immutable.
struct Buffer {
  const void* start = nullptr;
  std::uint64_t bytes = 0;  ///< 0 is legal
};
/// Of one message.
inline constexpr std::size_t kBuffersMax = 8;

/// The same of a message that lies in several buffers, one after the other in the order of
/// `buffers`; its receiver can't tell.
///
/// @param buffers  kBuffersMax at most; the list is the caller's again when the call returns.
///                 Together up to Vci::eager_bytes_max() bytes they are copied into the packet.
///                 Longer ones go from where each lies, one after the other; with
///                 PostOptions::region all of them lie in it. The completion names the first
/// @errors  kInvalidArgument: too many of them, or more bytes than 64 bits count; those of the
/// other
/// @threads, @owns  as the other
/// @cost    a short one: that of the other, and a copy of each buffer: no allocation
LARKLANE_API Result<Post> post_send(Vci& vci, int rank, std::uint32_t tag,
                                    std::span<const Buffer> buffers,
                                    const PostOptions& options = {}, Match match = {},
                                    MatchSpace space = {}) noexcept;

/// Memory of a lane for one short message, which the program writes there itself: posted without
/// another copy. A lane has 224 for programs, and some that they can't have: all other posts go on
/// when those are out.
/// Thread safety: single-owner. Destroyed, before the context, it gives the memory back.
class LARKLANE_API Packet {
 public:
  Packet() noexcept = default;
  Packet(Packet&& other) noexcept
      : lane_(other.lane_),
        number_(std::exchange(other.number_, 0)),
        start_(std::exchange(other.start_, nullptr)) {}
  Packet& operator=(Packet&& other) noexcept {
    Packet taken(std::move(other));
    std::swap(lane_, taken.lane_);
    std::swap(number_, taken.number_);
    std::swap(start_, taken.start_);
    return *this;
  }
  ~Packet();

  /// Where the message goes: Vci::packet_bytes_max() bytes, aligned to 8. Null: there is none,
  /// since none was free, or it has been posted.
  void* start() const noexcept { return start_; }
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

/// @return  empty: all are out; make progress, and ask again
/// @threads thread-safe
/// @cost    one atomic exchange; no allocation, no lock
LARKLANE_API Packet take_packet(Vci& vci) noexcept;

/// Send the first `bytes` bytes of `packet`, as post_send() does: what it is to its receive is the
/// same.
///
/// @param packet  of the lane of `vci`. `done`, `posted`: the library's, and the handle is empty.
///                `retry`, an error: it is still the caller's, with all that is in it
/// @param bytes   Vci::packet_bytes_max() at most
/// @errors  kInvalidArgument: an empty packet, or another lane's; too many bytes; those of
///          post_send()
/// @cost    that of post_send(); nothing is copied here
LARKLANE_API Result<Post> post_send(Vci& vci, int rank, std::uint32_t tag, Packet& packet,
                                    std::uint64_t bytes, const PostOptions& options = {},
                                    Match match = {}, MatchSpace space = {}) noexcept;

/// A message that is longer than `bytes` leaves the buffer undefined and completes with
/// kSizeMismatch and its own length.
///
/// @param rank   of the source; ignored by Match::tag and none
/// @param[out] done  what a `done` receive tells. Null: it is signalled
/// @errors  kInvalidArgument: rank, buffer, space
/// @threads thread-safe
/// @owns    posted: the buffer is the library's until the completion
LARKLANE_API Result<Post> post_recv(Vci& vci, int rank, std::uint32_t tag, void* buffer,
                                    std::uint64_t bytes, const PostOptions& options,
                                    Completion* done = nullptr, Match match = {},
                                    MatchSpace space = {}) noexcept;

/// An active message, or a put whose target is allocated on arrival: `there`, an object of the
/// peer's, is signalled with the bytes, in memory that is made for them when they come
/// (Completion::buffer), and with our rank and the tag. What the peer has
/// deregistered loses it; a long one completes here with the error then.
///
/// @errors, @threads, @owns  as post_send
LARKLANE_API Result<Post> post_am(Vci& vci, int rank, RemoteCompletion there, std::uint32_t tag,
                                  const void* buffer, std::uint64_t bytes,
                                  const PostOptions& options = {}) noexcept;
/// The same of several buffers, as post_send() has them.
LARKLANE_API Result<Post> post_am(Vci& vci, int rank, RemoteCompletion there, std::uint32_t tag,
                                  std::span<const Buffer> buffers,
                                  const PostOptions& options = {}) noexcept;
/// The same of a packet, as post_send() has it.
LARKLANE_API Result<Post> post_am(Vci& vci, int rank, RemoteCompletion there, std::uint32_t tag,
                                  Packet& packet, std::uint64_t bytes,
                                  const PostOptions& options = {}) noexcept;
/// Give back what an active message has brought, also when the context is gone. Null is legal.
/// Thread-safe.
LARKLANE_API void free_buffer(void* buffer) noexcept;

/// Write `bytes` bytes at `offset` of `region`. With `there`, that object of the peer's is
/// signalled when they are there: our rank, the tag, how many. Puts have no order among each other.
/// The completion says that the buffer is the caller's again; that the bytes are there the peer
/// hears by the signal, or by what is posted to it over the same lane after the completion.
///
/// @errors  kInvalidArgument: outside of the region; those of post_send
/// @threads thread-safe
LARKLANE_API Result<Post> post_put(Vci& vci, const RemoteRegion& region, std::uint64_t offset,
                                   const void* buffer, std::uint64_t bytes,
                                   const PostOptions& options, RemoteCompletion there = 0,
                                   std::uint32_t tag = 0) noexcept;
/// Read them. With `there`, that object of the peer's is signalled when they have been read.
LARKLANE_API Result<Post> post_get(Vci& vci, const RemoteRegion& region, std::uint64_t offset,
                                   void* buffer, std::uint64_t bytes, const PostOptions& options,
                                   RemoteCompletion there = 0, std::uint32_t tag = 0) noexcept;

/// Add `value` to the 8 bytes at `offset`; they begin at a multiple of 8. Atomics of one location
/// happen one after the other, whoever posts them; those of one thread over one lane in its order.
/// With atomics of the owner's own (std::atomic_ref), too.
///
/// @param[out] before  what was there; stays the library's until the completion. Null: not wanted
/// @errors  as post_put; kInvalidArgument, perhaps in the completion: no multiple of 8
LARKLANE_API Result<Post> post_fetch_add(Vci& vci, const RemoteRegion& region, std::uint64_t offset,
                                         std::uint64_t value, std::uint64_t* before,
                                         const PostOptions& options) noexcept;
/// Store `value` there if `expected` is there. It was done if `*before` is `expected`.
LARKLANE_API Result<Post> post_compare_swap(Vci& vci, const RemoteRegion& region,
                                            std::uint64_t offset, std::uint64_t expected,
                                            std::uint64_t value, std::uint64_t* before,
                                            const PostOptions& options) noexcept;
/// Of one post_accumulate().
inline constexpr std::uint32_t kAccumulateMax = 1020;
/// Add `count` doubles to those at `offset`: each atomically as far as other accumulates go,
/// whoever posts them, through regions of the same context. Not so with the atomics above, or the
/// owner's own, of the same bytes, or through another mapping of them.
/// @param count  kAccumulateMax at most
LARKLANE_API Result<Post> post_accumulate(Vci& vci, const RemoteRegion& region,
                                          std::uint64_t offset, const double* values,
                                          std::uint32_t count, const PostOptions& options) noexcept;

}  // namespace larklane
