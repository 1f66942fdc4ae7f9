#pragma once
// A lane, as messages use it: packets, what is in flight, and what has to be done when its lock is
// not held: handlers are called, records go out that had no room, listeners who had none go on.

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
#include "msg/protocol/operation.hpp"
#include "vci/vci.hpp"

namespace larklane::msg {

class Connection;
class Engine;

/// What a lane has not done at once, by reason. Thread safety: immutable.
struct MessageCounts {
  std::uint64_t no_connection;  ///< posts that have to be made again: the peer is not connected yet
  std::uint64_t no_operation;   ///< the same: as many are in flight as may be
  std::uint64_t no_memory;      ///< the same: no more can be registered
  std::uint64_t behind;         ///< the same: others wait already
  std::uint64_t held;           ///< records that could not be taken in yet: no memory for them
  std::uint64_t lost;           ///< signals of peers for objects that are not there any more
};

// Thread safety: thread-safe, but for what says that the lane's lock is held.
// Invariants:
// 1. An operation is the pool's, its poster's, or in exactly one of: a matching engine, the
//    awaited, a connection's backlog, the network, the handlers. It is finished once.
// 2. Handlers run, and records go out that had to wait, in progress() only, with no lock held.
class MessageLane final {
 public:
  struct Options {
    PacketLane::Options packets{};
    /// In flight at a time; and, of what has come, messages that wait for their receive and
    /// completions that wait to be popped. Some 900 bytes each, made when they are needed.
    std::uint32_t operations = 1u << 16;
    /// Of each size, for what comes unexpected and for active messages: 10 KiB each, made when they
    /// are needed.
    std::uint32_t buffers = 1u << 12;
    /// Longest message that is copied into a bounce buffer, where the network says so.
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
  Ledger& ledger() noexcept { return *ledger_; }
  BounceBuffers& bounce_buffers() noexcept { return bounce_buffers_; }

  /// A turn of the lane, and what comes of it, whoever else has it for himself. @return as
  /// Vci::progress()
  std::uint32_t progress() noexcept;
  /// By a thread whose own it is. relaxed, here and below: a hint.
  void attend() noexcept {
    if (!is_attended_.load(std::memory_order_relaxed)) [[unlikely]]
      is_attended_.store(true, std::memory_order_relaxed);
  }
  /// Before a turn of who waits, without the lock: if little came before, or a turn is dear, looks
  /// away until more may be there. What senders write meanwhile comes together, and they keep their
  /// lines as long.
  void give_way() noexcept {
    using Pause = net::Receiver::Pause;
    if (packets_->pause.load(std::memory_order_relaxed) != Pause::none) look_away();
  }
  /// How long that is now: turns of a register that counts, of which 1,000 take 0.3 us or somewhat
  /// less, or until a time. Takes back why.
  struct Away {
    std::uint32_t turns;
    std::uint64_t until_ns;
  };
  Away why_away() noexcept;
  /// Has anybody, since it was asked last?
  bool take_attended() noexcept {
    if (!is_attended_.load(std::memory_order_relaxed)) return false;
    is_attended_.store(false, std::memory_order_relaxed);
    return true;
  }

  /// One that will signal `object`, or nobody. Null: as many are in flight as may be (counted).
  Operation* take(Object* object) noexcept;
  void give_back(Operation& operation) noexcept { operation.home->give_back(operation); }
  /// What its completion says is told to its object, or to nobody. @pre it is over
  void finish(Operation& operation) noexcept;
  void finish(Operation& operation, Status status) noexcept {
    operation.completion.status = status;
    finish(operation);
  }

  // With the lane's lock held.
  void finish_locked(Operation& operation) noexcept;
  /// The same of a receive whose message came in a record; it goes back by
  /// give_back_heard_locked().
  void finish_heard_locked(Operation& receive) noexcept;
  void give_back_heard_locked() noexcept { heard_.give_back(); }
  /// Room for what comes in: an operation that take_arrival() will give, and `bytes` of memory that
  /// take_buffer() will. False: there is none (counted).
  bool make_room_locked(std::uint32_t bytes) noexcept;
  Operation& take_arrival_locked() noexcept { return *std::exchange(arrival_, nullptr); }
  /// Of take_arrival_locked(), not needed.
  void put_arrival_locked(Operation& operation) noexcept;
  /// @pre make_room_locked() of more than no bytes
  std::byte* take_buffer_locked() noexcept { return std::exchange(buffer_, nullptr); }
  /// For what is fetched. Null: no memory.
  std::byte* take_long_buffer_locked(std::uint64_t bytes) noexcept {
    return long_buffers_.take(bytes);
  }
  /// `connection` has said "not now".
  void hold_locked(Connection& connection) noexcept;
  void note_lost_locked() noexcept { note(lost_); }

  /// Of a connection that has records to send, until it has none.
  void add_backlog(Connection& connection) noexcept;

  void note_no_connection() noexcept { note(no_connection_); }
  void note_no_operation() noexcept { note(no_operation_); }
  void note_no_memory() noexcept { note(no_memory_); }
  void note_behind() noexcept { note(behind_); }
  MessageCounts counts() const noexcept;

 private:
  MessageLane(Engine& engine, std::uint32_t index, const Options& options,
              std::unique_ptr<PacketLane> packets, std::unique_ptr<Ledger> ledger,
              Pool<Operation> pool, Pool<Operation> arrivals, BufferPool buffers,
              LongBufferPool long_buffers) noexcept;

  void look_away() noexcept;
  enum class Held : bool { nothing, lane_lock };
  void conclude(Operation& operation, Held held) noexcept;
  void run_handlers_slow() noexcept;
  void send_backlog_slow() noexcept;
  void resume_held_slow() noexcept;
  static void note(std::atomic<std::uint64_t>& counter) noexcept {
    counter.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
  }

  Engine& engine_;
  const std::uint32_t index_;
  const std::unique_ptr<PacketLane> packets_;
  const std::unique_ptr<Ledger> ledger_;
  Awaited awaited_;
  BounceBuffers bounce_buffers_;

  static void prepare(Operation& operation, MessageLane& lane) noexcept;

  // With the lane's lock held. A pool of its own: who posts can't take what it needs to go on.
  Pool<Operation> arrivals_;
  BufferPool buffers_;
  LongBufferPool long_buffers_;
  Operation* arrival_ = nullptr;
  ReturningNodes heard_;  // receives that are over, until all that was there has been heard
  static constexpr std::uint32_t kHeardMost = 64;  // of them
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

  alignas(vci::kOwnLineBytes) std::atomic<std::uint64_t> no_connection_{0};
  std::atomic<std::uint64_t> no_operation_{0}, no_memory_{0}, behind_{0}, held_count_{0}, lost_{0};
};

}  // namespace larklane::msg
