#pragma once
// A lane for messages: its packets, its operations in flight, and work for times when its lock is
// free. Then it calls handlers, posts delayed records, and resumes held ones.

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/spin_lock.hpp"
#include "base/status.hpp"
#include "base/thread_safety.hpp"
#include "msg/completion/ledger.hpp"
#include "msg/completion/node_queue.hpp"
#include "msg/memory/bounce_buffers.hpp"
#include "msg/memory/buffer.hpp"
#include "msg/memory/pool.hpp"
#include "msg/packet/packet_lane.hpp"
#include "msg/protocol/awaited.hpp"
#include "msg/protocol/offer_words.hpp"
#include "msg/protocol/operation.hpp"
#include "vci/vci.hpp"

namespace larklane::msg {

class Connection;
class Engine;

/// Counts of a lane's delays, by reason. Thread safety: immutable.
struct MessageCounts {
  std::uint64_t no_connection;  ///< posts that returned retry or queued: no link to the peer yet
  std::uint64_t no_operation;   ///< the same: all operations are in use
  std::uint64_t no_memory;      ///< the same: no more memory can be registered
  std::uint64_t behind;         ///< the same: earlier posts wait
  std::uint64_t held;           ///< records held in their ring: no memory for them
  std::uint64_t lost;           ///< signals of peers for objects that no longer exist
};

// Thread safety: thread-safe; the functions that say so run with the lane's lock held.
// Invariants:
// 1. An operation is its pool's, its poster's, or in exactly one of: a matching engine, the
//    awaited, a connection's backlog, the network, the handlers. It is finished once.
// 2. Handlers run, and delayed records go out, only in progress(), with no lock held.
class MessageLane final {
 public:
  struct Options {
    PacketLane::Options packets{};
    /// Operations in flight at a time. Of arrivals, as many: messages that wait for a receive, and
    /// completions that wait in a queue. Some 900 bytes each, allocated on demand.
    std::uint32_t operations = 1u << 16;
    /// Buffers of each size, for unexpected messages and active messages: 10 KiB for the three,
    /// allocated on demand.
    std::uint32_t buffers = 1u << 12;
    /// Longest message that is copied into a bounce buffer, if the network wants that.
    std::uint64_t bounce_bytes_max = UINT64_MAX;
  };

  /// @errors those of PacketLane::create; kNoMemory; kInvalidArgument: longer records than buffers
  static Result<std::unique_ptr<MessageLane>> create(Engine& engine, std::uint32_t index,
                                                     net::Fabric& fabric, CompletionDomain& domain,
                                                     Options options);
  ~MessageLane();

  Engine& engine() const noexcept { return engine_; }
  std::uint32_t index() const noexcept { return index_; }
  PacketLane& packets() noexcept { return *packets_; }
  vci::Vci& vci() const noexcept { return packets_->vci(); }
  Awaited& awaited() noexcept { return awaited_; }
  OfferWords& offer_words() noexcept { return offer_words_; }
  Ledger& ledger() noexcept { return *ledger_; }
  BounceBuffers& bounce_buffers() noexcept { return bounce_buffers_; }

  /// A turn of the lane and its follow-up work, even if another thread owns the lane. @return as
  /// Vci::progress()
  std::uint32_t progress() noexcept;
  /// Would progress() find nothing to do? Takes no lock: a hint.
  bool looks_idle() const noexcept {
    // relaxed: as in progress()
    return vci().looks_idle() && handlers_.looks_empty() &&
           !has_backlog_.load(std::memory_order_relaxed) &&
           !has_held_.load(std::memory_order_relaxed) &&
           !has_paused_.load(std::memory_order_relaxed);
  }
  /// For the helper: as progress(), but waits for the lane's lock.
  std::uint32_t serve() noexcept;
  /// For a progress hook: a turn with at most `most` records of each ring, if the lock is free.
  /// Runs no handlers.
  std::uint32_t try_progress(std::uint32_t most) noexcept;
  /// Bytes of long messages that the calling thread may still read in its turn of a progress hook;
  /// outside of one, no limit.
  static constexpr std::uint64_t kNoLimit = UINT64_MAX;
  static thread_local constinit std::uint64_t hook_bytes_left;
  static bool is_in_hook() noexcept { return hook_bytes_left != kNoLimit; }
  /// Up to `wanted` of them.
  static std::uint64_t take_hook_bytes(std::uint64_t wanted) noexcept {
    if (hook_bytes_left == kNoLimit) [[likely]]
      return wanted;
    const std::uint64_t taken = wanted < hook_bytes_left ? wanted : hook_bytes_left;
    hook_bytes_left -= taken;
    return taken;
  }
  /// The operation reads on in a later turn.
  void pause(Operation& operation) noexcept;
  /// By a thread that uses this lane as its own. relaxed, here and below: a hint.
  void attend() noexcept {
    if (!is_attended_.load(std::memory_order_relaxed)) [[unlikely]]
      is_attended_.store(true, std::memory_order_relaxed);
  }
  /// A waiting thread calls this before its turn, without the lock. If the last turn found little,
  /// or turns are dear, it backs off until more may have arrived. Meanwhile senders keep their
  /// lines, and their messages arrive together.
  void give_way() noexcept {
    using Pause = net::Receiver::Pause;
    if (packets_->pause.load(std::memory_order_relaxed) != Pause::none) look_away();
  }
  /// Length of the back-off: turns of an empty loop (1,000 take 0.3 us or somewhat less), or a
  /// deadline. why_away() resets the reason for it.
  struct Away {
    std::uint32_t turns;
    std::uint64_t until_ns;
  };
  Away why_away() noexcept;
  /// Has a thread attended since the last call?
  bool take_attended() noexcept {
    if (!is_attended_.load(std::memory_order_relaxed)) return false;
    is_attended_.store(false, std::memory_order_relaxed);
    return true;
  }

  /// An operation that will signal `object`, if any. Null: all are in use (counted).
  Operation* take(Object* object) noexcept;
  /// The same for ordinary messages, without a limit and without an object. `polled`: open, or no.
  /// Null: memory ran out.
  Operation* take_ordinary(Operation::Polled polled) noexcept;
  /// The same for a receive: prepare_transfer() follows if it fetches bytes.
  Operation* take_unprepared() noexcept;
  /// It has no connection and no registered memory.
  static void prepare_transfer(Operation& operation) noexcept {
    operation.connection = nullptr;
    operation.registered = nullptr;
    operation.region = nullptr;
    operation.before = nullptr;
    operation.signals = 0;
    operation.is_bounced = operation.is_lent = operation.is_dynamic = false;
  }
  void give_back(Operation& operation) noexcept { operation.home->give_back(operation); }
  /// Passes the operation's completion to its object, if any. @pre the operation is over
  void finish(Operation& operation) noexcept;
  void finish(Operation& operation, Status status) noexcept {
    operation.completion.status = status;
    finish(operation);
  }

  // With the lane's lock held.
  void finish_locked(Operation& operation) noexcept;
  /// The same for a receive whose message came in a record; give_back_heard_locked() frees it.
  void finish_heard_locked(Operation& receive) noexcept;
  void give_back_heard_locked() noexcept { heard_.give_back(); }
  /// Reserves memory for an arrival: an operation for take_arrival_locked(), and `bytes` for
  /// take_buffer_locked(). False: there is none (counted).
  bool make_room_locked(std::uint32_t bytes) noexcept;
  Operation& take_arrival_locked() noexcept { return *std::exchange(arrival_, nullptr); }
  /// Returns an unused operation of take_arrival_locked().
  void put_arrival_locked(Operation& operation) noexcept;
  /// @pre make_room_locked() of 1 byte or more
  std::byte* take_buffer_locked() noexcept { return std::exchange(buffer_, nullptr); }
  /// For fetched bytes. Null: memory ran out.
  std::byte* take_long_buffer_locked(std::uint64_t bytes) noexcept {
    return long_buffers_.take(bytes);
  }
  /// For an ordinary message, without a limit: an operation with `bytes` of room in `local`.
  /// Null: memory ran out.
  Operation* keep_locked(std::uint64_t bytes) noexcept;
  /// `connection` has put off a record.
  void hold_locked(Connection& connection) noexcept;
  void note_lost_locked() noexcept { note(lost_); }

  /// Engine::serve_woken() follows the next turn. relaxed, both: hints.
  void note_woken() noexcept { has_held_.store(true, std::memory_order_relaxed); }
  /// Engine::drain_backlogs() follows each turn, until none is left.
  void note_backlog() noexcept { has_backlog_.store(true, std::memory_order_relaxed); }

  /// For a connection with delayed records, until it has none.
  void add_backlog(Connection& connection) noexcept;

  /// Runs `change` while no thread sends delayed records: each waits in its list, or is out.
  template <class Change>
  auto while_none_sends(Change&& change) noexcept {
    // acquire: as in send_backlog_slow(). Its holder only posts.
    while (is_sending_.exchange(true, std::memory_order_acquire)) ::sched_yield();
    auto answer = change();
    is_sending_.store(false, std::memory_order_release);  // pairs with that acquire
    return answer;
  }

  void note_no_connection() noexcept { note(no_connection_); }
  void note_no_operation() noexcept { note(no_operation_); }
  void note_no_memory() noexcept { note(no_memory_); }
  void note_behind() noexcept { note(behind_); }
  MessageCounts counts() const noexcept;

 private:
  /// Memory of ordinary messages: pools without a limit.
  struct Ordinary {
    static Result<Ordinary> create() noexcept;
    Pool<Operation> pendings;  // guarded by pool_lock_
    // With the lane's lock held.
    Pool<Operation> kept;
    BufferPool buffers;
  };

  MessageLane(Engine& engine, std::uint32_t index, const Options& options,
              std::unique_ptr<PacketLane> packets, std::unique_ptr<Ledger> ledger,
              Pool<Operation> pool, Pool<Operation> arrivals, BufferPool buffers,
              LongBufferPool long_buffers, Ordinary ordinary) noexcept;

  template <class PoolOf>
  Operation* take_of(PoolOf&& pool, Object* object) noexcept;
  void look_away() noexcept;
  enum class Held : bool { nothing, lane_lock };
  void conclude(Operation& operation, Held held) noexcept;
  std::uint32_t follow_up(std::uint32_t served) noexcept;
  void run_handlers_slow() noexcept;
  void send_backlog_slow() noexcept;
  void resume_held_slow() noexcept;
  void try_resume_held() noexcept;
  void read_on_slow() noexcept;
  static void note(std::atomic<std::uint64_t>& counter) noexcept {
    counter.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
  }

  Engine& engine_;
  const std::uint32_t index_;
  const std::unique_ptr<PacketLane> packets_;
  const std::unique_ptr<Ledger> ledger_;
  Awaited awaited_;
  OfferWords offer_words_;
  BounceBuffers bounce_buffers_;

  static void prepare(Operation& operation, MessageLane& lane) noexcept {
    operation.lane = &lane;
    prepare_transfer(operation);
  }

  // With the lane's lock held. A separate pool: posts can't take the operations that arrivals need.
  Pool<Operation> arrivals_;
  BufferPool buffers_;
  LongBufferPool long_buffers_;
  Ordinary ordinary_;
  Operation* arrival_ = nullptr;
  ReturningNodes heard_;  // finished receives, until the batch of arrivals ends
  static constexpr std::uint32_t kHeardMost = 64;  // nodes in it
  std::byte* buffer_ = nullptr;
  std::uint32_t buffer_bytes_ = 0;
  Connection* held_ = nullptr;

  NodeQueue<RealPlatform> handlers_;
  std::atomic<bool> has_held_{false}, is_attended_{false};

  alignas(vci::kOwnLineBytes) vci::Bias pool_bias_;
  SpinLock pool_lock_;
  Pool<Operation> pool_ LARKLANE_GUARDED_BY(pool_lock_);

  alignas(vci::kOwnLineBytes) SpinLock backlog_lock_;
  Connection* backlog_ LARKLANE_GUARDED_BY(backlog_lock_) = nullptr;
  std::atomic<bool> has_backlog_{false}, is_sending_{false};

  SpinLock pause_lock_;
  Node* paused_ LARKLANE_GUARDED_BY(pause_lock_) = nullptr;  // the oldest first
  std::atomic<bool> has_paused_{false};

  alignas(vci::kOwnLineBytes) std::atomic<std::uint64_t> no_connection_{0};
  std::atomic<std::uint64_t> no_operation_{0}, no_memory_{0}, behind_{0}, held_count_{0}, lost_{0};
};

}  // namespace larklane::msg
