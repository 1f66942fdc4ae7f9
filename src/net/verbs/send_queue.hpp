#pragma once
// One queue pair and its pending operations, in the order in which they were posted: RC completes
// in that order, so a completion completes all before it.
//
// Which work requests are signalled. A poster does not always know whether its request is the last
// one, so:
// * a request that is posted as the last is signalled, and one that finds none outstanding that is;
//   of those behind it every kSignalEvery-th is;
// * when the last signalled one has completed and unsignalled ones are left behind it, a write of
//   no bytes is posted, signalled: the flush. One slot of the queue is kept for it.
// So while any operation is pending, a signalled one is, and the rest completes without a further
// post. Lone operations, one after the other, need no flush.

#include <arpa/inet.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "net/provider.hpp"
#include "net/verbs/alarm.hpp"
#include "net/verbs/handles.hpp"

namespace larklane::verbs {

class Link;

inline constexpr std::uint32_t kSmallBytesMax = 32;

/// Counters for people and tests; they never decide anything.
struct Counters {
  std::uint64_t signalled = 0;
  std::uint64_t unsignalled = 0;
  std::uint64_t flushes = 0;     ///< among the signalled
  std::uint64_t full = 0;        ///< posts that were told to retry
  std::uint64_t extended = 0;    ///< of all posted: by ibv_wr_*, without a work request in memory
  std::uint64_t immediates = 0;  ///< received
  std::uint64_t receives = 0;    ///< receive work requests posted
  std::uint64_t receive_posts = 0;  ///< calls that posted them
};

/// Of a receive's work completion. Of others the upper half, never 0, names a queue, also after its
/// end.
inline constexpr std::uint64_t kReceiveId = 0;
/// Where each link carries one channel.
inline constexpr std::uint64_t kChannelReceiveId = 1;

/// Thread safety: vci-serial.
/// Invariants:
/// 1. delivered <= finished <= posted <= room_end, all modulo 2^32, posted - delivered <= depth.
/// 2. While finished != posted and the queue is alive, a signalled request lies in [finished,
///    posted), or the queue waits in its endpoint's list for settle().
/// 3. More than half of the depth is posted only while every completion raises an event: so there
///    is one before the queue is full, and a sleeping thread makes room.
class SendQueue {
 public:
  struct Shape {
    std::uint32_t depth;         ///< work requests: a power of two, at least 2 * signal_every
    std::uint32_t signal_every;  ///< 1: all
  };

  /// @param extended  the pair's, where the device takes ibv_wr_*; null: ibv_post_send
  /// @param alarm  its completion queue's
  SendQueue(QueuePair pair, ibv_qp_ex* extended, Shape shape, std::uint32_t id, Counters& counters,
            Alarm& alarm);

  ibv_qp* pair() const noexcept { return pair_.get(); }
  std::uint32_t id() const noexcept { return id_; }
  const Shape& shape() const noexcept { return shape_; }
  bool is_extended() const noexcept { return extended_ != nullptr; }
  /// Copies of small data lie there, when the device takes none with the work request.
  void use_copies(std::unique_ptr<std::byte[]> copies, Registration registration);

  /// A work request, its variable part.
  struct Request {
    ibv_wr_opcode opcode;
    std::byte* local;
    std::uint32_t bytes;
    std::uint32_t local_key;
    net::RemoteMemory remote;
    std::uint32_t immediate;
    bool is_small = false;
    unsigned flags = 0;  ///< IBV_SEND_SOLICITED: the peer is to wake
  };
  Result<net::Post> post(const Request& request, net::Operation& operation);

  /// A write with immediate, all that stays the same: in net::Operation::provider_space.
  struct Prepared {
    ibv_sge element;
    decltype(ibv_send_wr::wr.rdma) remote;
    std::uint32_t immediate;  ///< as it travels
    Link* link;
    SendQueue* queue;
  };
  static_assert(sizeof(Prepared) <= sizeof(net::Operation::provider_space));
  static constexpr int kNoRoom = -1;  ///< not an errno
  /// @return 0: posted() counts it; kNoRoom: maybe find_room_slow() has some; else, or then:
  /// not_posted_slow() says its outcome
  /// @param kIsExtended  is_extended()
  template <bool kIsExtended>
  int hand_over(Prepared& prepared, net::Operation& operation) noexcept;
  Result<net::Post> posted() noexcept;
  Result<net::Post> not_posted_slow(int error) noexcept;
  /// Where room_end_ is reached. @return there is room behind it
  bool find_room_slow() noexcept;

  /// The work request numbered `sequence` has completed, with all before it.
  void finish(std::uint32_t sequence) noexcept;
  /// Work request `sequence` has failed: those before it had completed, it and all behind it fail
  /// with `error`; nothing can be posted any more.
  void fail(std::uint32_t sequence, Status error) noexcept;
  /// As fail() with the first one that has not finished.
  void fail_all(Status error) noexcept { fail(finished_, error); }

  bool has_deliverable() const noexcept { return delivered_ != finished_; }
  bool is_idle() const noexcept { return delivered_ == posted_; }
  /// The device may still report something of it.
  bool may_be_heard_of() const noexcept { return is_dead() || finished_ != posted_; }
  bool is_dead() const noexcept { return !error_.ok(); }
  Status error() const noexcept { return error_; }
  /// Take the next finished one. @return null: a flush, no operation waits for it
  net::Operation* take(Status* status) noexcept;
  /// Post the flush if it is needed.
  void settle();

  SendQueue* partner = nullptr;  ///< the next one of the same link, and round: they end together
  // The endpoint's list of queues with something to deliver or to settle.
  SendQueue* next_pending = nullptr;
  bool is_pending = false;

 private:
  net::Operation*& slot(std::uint32_t sequence) noexcept {
    return operations_[sequence & slot_mask_];
  }
  /// @return retry: the device says that its queue is full
  Result<net::Post> post_request(const Request& request) noexcept;
  // Of `element_`. @return errno of the device's call
  int post_plain(const Request& request, unsigned flags) noexcept;
  int post_extended(ibv_wr_opcode opcode, net::RemoteMemory remote, std::uint32_t immediate,
                    unsigned flags) noexcept;
  /// After a change of its inputs: how far may be posted, and which request is signalled next.
  void set_room() noexcept;
  void set_signal() noexcept;
  void copy_small_slow(const Request& request) noexcept;

  QueuePair pair_;
  ibv_qp_ex* const extended_;
  const Shape shape_;
  const std::uint32_t slot_mask_;
  const std::uint32_t id_;
  const std::uint64_t tag_;           // of its completions: id, then a sequence number
  std::uint32_t posted_ = 0;          // work requests, sequence numbers below
  std::uint32_t finished_ = 0;        // completed by the device, or failed
  std::uint32_t delivered_ = 0;       // told to their posters
  std::uint32_t failed_from_ = 0;     // while !error_.ok(): this one and those behind it
  std::uint32_t last_signalled_ = 0;  // sequence + 1; of outstanding requests, if any
  std::uint32_t room_end_ = 0;        // sequence numbers below may be posted: find_room_slow()
  std::uint32_t signal_at_ = 0;       // this one is the next to be signalled; >= posted_
  Status error_;
  bool is_crowded_ = false;  // more than half is posted, or was, and room has not been set since
  Counters& counters_;
  Alarm& alarm_;
  std::unique_ptr<net::Operation*[]> operations_;
  Registration copies_registration_;  // after the memory: ends before it
  std::unique_ptr<std::byte[]> copies_;
  ibv_sge element_{};
  ibv_send_wr work_{};
  ibv_send_wr prepared_work_{};  // without flags, but for a post that is signalled
  ibv_send_wr* bad_ = nullptr;   // not read
};

// Inline: all that a post takes, in the link's function.

[[gnu::always_inline]] inline int SendQueue::post_plain(const Request& request,
                                                        unsigned flags) noexcept {
  work_.wr_id = tag_ | posted_;
  work_.opcode = request.opcode;
  work_.send_flags = flags;
  work_.num_sge = request.bytes == 0 ? 0 : 1;
  work_.imm_data = htonl(request.immediate);
  work_.wr.rdma.remote_addr = request.remote.address;
  work_.wr.rdma.rkey = static_cast<std::uint32_t>(request.remote.key);
  return ibv_post_send(pair_.get(), &work_, &bad_);
}

[[gnu::always_inline]] inline Result<net::Post> SendQueue::posted() noexcept {
  if (posted_++ == signal_at_) {
    last_signalled_ = posted_;
    signal_at_ = posted_ + shape_.signal_every - 1;
    prepared_work_.send_flags = 0;
    ++counters_.signalled;
  } else {
    ++counters_.unsignalled;
  }
  return net::Post::posted;
}

[[gnu::always_inline]] inline Result<net::Post> SendQueue::post_request(
    const Request& request) noexcept {
  unsigned flags = request.flags | (posted_ == signal_at_ ? unsigned{IBV_SEND_SIGNALED} : 0u);
  element_ = {reinterpret_cast<std::uintptr_t>(request.local), request.bytes, request.local_key};
  if (request.is_small && request.bytes != 0) {
    if (copies_ == nullptr)
      flags |= IBV_SEND_INLINE;
    else
      copy_small_slow(request);
  }
  const int error = extended_ != nullptr ? post_extended(request.opcode, request.remote,
                                                         htonl(request.immediate), flags)
                                         : post_plain(request, flags);
  if (error != 0) [[unlikely]]
    return not_posted_slow(error);
  return posted();
}

template <bool kIsExtended>
[[gnu::always_inline]] inline int SendQueue::hand_over(Prepared& prepared,
                                                       net::Operation& operation) noexcept {
  if (posted_ == room_end_) [[unlikely]]
    return kNoRoom;
  slot(posted_) = &operation;
  if (posted_ == signal_at_ || operation.is_last) {
    signal_at_ = posted_;
    prepared_work_.send_flags = IBV_SEND_SIGNALED;
  }
  if constexpr (kIsExtended) {
    element_ = prepared.element;
    return post_extended(IBV_WR_RDMA_WRITE_WITH_IMM,
                         {prepared.remote.remote_addr, prepared.remote.rkey}, prepared.immediate,
                         prepared_work_.send_flags);
  }
  prepared_work_.sg_list = &prepared.element;
  prepared_work_.wr_id = tag_ | posted_;
  prepared_work_.imm_data = prepared.immediate;
  prepared_work_.wr.rdma = prepared.remote;
  return ibv_post_send(pair_.get(), &prepared_work_, &bad_);
}

[[gnu::always_inline]] inline Result<net::Post> SendQueue::post(const Request& request,
                                                                net::Operation& operation) {
  if (posted_ == room_end_ && !find_room_slow()) [[unlikely]]
    return not_posted_slow(kNoRoom);
  slot(posted_) = &operation;
  if (operation.is_last) signal_at_ = posted_;
  if (!operation.wakes) return post_request(request);
  if (alarm_.want_all()) signal_at_ = posted_;
  auto answer = post_request(request);
  if (answer && *answer == net::Post::posted) alarm_.await();
  return answer;
}

inline constexpr SendQueue::Shape kWriteShape{128, 16};
/// Reads move much each, and a record waits for the completion of each: all are signalled.
inline constexpr SendQueue::Shape kReadShape{32, 1};
static_assert(kWriteShape.depth >= 2 * kWriteShape.signal_every);

/// The error of a work completion; detail: its status.
Status status_of(ibv_wc_status status) noexcept;

}  // namespace larklane::verbs
