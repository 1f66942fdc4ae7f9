#pragma once
// The message engine of one process: its lanes, its connections, its matching spaces, and the
// memory that peers may use.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/maker.hpp"
#include "base/spin_lock.hpp"
#include "base/status.hpp"
#include "larklane/context.hpp"
#include "msg/completion/completion_domain.hpp"
#include "msg/match/match.hpp"
#include "msg/protocol/communicators.hpp"
#include "msg/protocol/connection.hpp"
#include "msg/protocol/message_lane.hpp"
#include "msg/protocol/wire.hpp"
#include "net/provider.hpp"
#include "vci/mapping.hpp"
#include "vci/vci_pool.hpp"

namespace larklane::msg {

/// Connects lanes, for the engine. Thread safety: thread-safe.
class Connector {
 public:
  virtual ~Connector() = default;
  /// Link `number` to `rank` is wanted: leads to a call of Connection::begin() or refuse(). Never
  /// blocks; once for each link.
  virtual void want(int rank, std::uint32_t number) = 0;
  /// A thread that has polled without result for long calls control::Plane::look_at_descriptors().
  virtual void look_at_descriptors() {}
  /// Option stall_ns: a thread here waits for `rank`, which may be outside of the library. Its
  /// helper is to call Engine::serve_all(). Never blocks for long; no lock is held.
  virtual void ring(int /*rank*/) {}
};

/// The inside of a Region. Thread safety: immutable.
struct LocalRegion {
  Engine& engine;
  std::unique_ptr<net::Memory> memory;
  std::byte* start;
  std::uint64_t bytes;
  std::uint32_t number;
};

// Thread safety: thread-safe.
// Invariants:
// 1. A connection, a space and a lane, once made, live as long as the engine.
// 2. A region is not freed while a peer's record uses it. A lane calls find() with its lock held;
//    remove_region() takes every lane's lock once after find() can no longer return the region.
class Engine final : private vci::VciPool::Receivers {
 public:
  /// The side that moves a long message: the receiver reads it, or asks the sender to write it,
  /// where can_ask_for_writes(). `chosen`: the sender where the peer's software serves a read in
  /// any case. (docs/design/protocols/messages.md, "Eager and rendezvous")
  enum class Rendezvous : std::uint8_t { chosen, read, write };
  struct Options {
    int rank = 0;
    int size = 1;
    vci::VciPool::Options lanes{};
    MessageLane::Options lane{};
    /// At most the payload of a record. Users set 64 or more.
    std::uint32_t eager_bytes_max = UINT32_MAX;
    Rendezvous rendezvous = Rendezvous::chosen;
    /// Communicators may ask for lanes by tag in MPI's order (Hints::lanes_by_tag), where peers'
    /// memory can be mapped. Then posts are pushed (PacketLink).
    bool lanes_by_tag = false;
    /// A waiting thread rings a peer that has done nothing for so long: Connector::ring(). 0:
    /// never.
    std::uint64_t stall_ns = 0;
  };
  static constexpr std::uint32_t kRegionsMax = 1u << 12;
  static constexpr std::uintptr_t kStripeBytes = 1024;

  Engine(net::Fabric& fabric, CompletionDomain& domain, Connector& connector, Options options);
  /// Nothing is in flight, and no link leads to a lane.
  ~Engine() override;

  net::Fabric& fabric() const noexcept { return fabric_; }
  CompletionDomain& domain() const noexcept { return domain_; }
  /// False in a forked child, which may use no part of the engine. A system call.
  bool is_made_here() const noexcept { return maker_.is_this_process(); }
  int rank() const noexcept { return options_.rank; }
  int size() const noexcept { return options_.size; }
  std::uint32_t record_bytes_max() const noexcept { return record_bytes_max_; }
  std::uint32_t eager_bytes_max() const noexcept { return eager_bytes_max_; }
  std::uint32_t small_bytes_max() const noexcept { return small_bytes_max_; }
  bool asks_for_writes() const noexcept { return asks_for_writes_; }
  /// Immediates need no reserve there; a long message's immediate would have none.
  static bool can_ask_for_writes(const net::Limits& limits) noexcept {
    return limits.immediates_max == 0;
  }

  enum class Use : std::uint8_t { shared, own_thread };
  /// A place on the lane with the fewest users, or an unused lane for the calling thread alone.
  /// @errors those of MessageLane and Vci::create; kNoMemory (EBUSY): all are taken
  Result<MessageLane*> take_lane(Use use = Use::shared);
  /// Gives back the place of a take_lane().
  void give_back(const MessageLane& lane) noexcept;
  /// The lane of link `number`, made on first use. @errors as take_lane()
  Result<MessageLane*> lane_of(std::uint32_t number);
  /// The first lane, or `other` if there is none yet. acquire: pairs with lane_of()'s release.
  MessageLane& first_lane(MessageLane& other) const noexcept {
    MessageLane* const first = made_[0].load(std::memory_order_acquire);
    return first == nullptr ? other : *first;
  }
  /// By a waiting thread: it may back off first.
  std::uint32_t progress(MessageLane& own) noexcept {
    own.give_way();
    return poll(own);
  }
  /// The same, without backing off.
  std::uint32_t poll(MessageLane& own) noexcept;
  /// The same two, without a turn of `own` while it looks idle: no lock is taken then.
  std::uint32_t progress_if_busy(MessageLane& own) noexcept {
    own.give_way();
    return poll_if_busy(own);
  }
  std::uint32_t poll_if_busy(MessageLane& own) noexcept;
  std::uint32_t progress_all() noexcept;
  /// As progress_if_busy() and poll_if_busy(), for a message that may come on any lane.
  std::uint32_t progress_everywhere(MessageLane& own) noexcept {
    own.give_way();
    return poll_everywhere(own);
  }
  std::uint32_t poll_everywhere(MessageLane& own) noexcept;
  /// By a helper that a peer has rung: a turn of each lane, also if other threads make turns: one
  /// of them may have looked at a ring before its last record came. Runs no handler of the program,
  /// where all messages are ordinary. @return as progress_all(); 0: it may sleep
  std::uint32_t serve_all() noexcept;
  /// By a thread that waits, now and then: rings the peers whose connections are stalled.
  void look_for_stalls() noexcept;
  std::uint64_t stall_ns() const noexcept { return options_.stall_ns; }

  /// The connection from `lane` to `rank`, made and wanted on first use. Null: memory ran out.
  /// @pre 0 <= rank < size
  Connection* connection(MessageLane& lane, int rank) noexcept {
    if (Connection* const found = find_connection(rank, lane.index())) [[likely]]
      return found;
    return make_connection_slow(rank, lane.index(), true);
  }
  /// For a link that a peer wants. @pre as connection(); the lane exists
  Connection* connection_of_link(int rank, std::uint32_t number) noexcept;

  /// Link `number` to `rank` will never open.
  void refuse(int rank, std::uint32_t number, Status status) noexcept;
  /// All posts are out.
  bool is_quiet() const noexcept;
  /// Packets that users hold.
  std::uint32_t held_packet_count() const noexcept;
  /// Nothing more arrives from `rank`.
  void lose(int rank, Status status) noexcept;
  bool is_lost(int rank) const noexcept {
    // acquire: pairs with lose()'s release.
    return has_lost_.load(std::memory_order_acquire) && is_lost_slow(rank);
  }
  Status why_lost(int rank) const noexcept;

  /// Null: memory ran out.
  MatchingEngine* space(MatchSpace space) noexcept {
    // acquire: pairs with make_space_slow()'s release.
    MatchingEngine* const made =
        spaces_[space.is_ordered][space.number].load(std::memory_order_acquire);
    return made != nullptr ? made : make_space_slow(space);
  }

  /// The communicator `id`, for ordinary messages. It may have messages already, of members that
  /// were faster. Call it within the Creation, of each new communicator, before the program sees
  /// it.
  /// @param members  ranks in this engine, by rank in the communicator; of an intercommunicator the
  ///   remote group's. Copied
  /// @param own_rank  in the communicator; of an intercommunicator in the local group
  /// @errors kNoMemory; kAlreadyActive: it is open
  Result<Communicator*> open(const ContextId& id, std::span<const int> members, int own_rank,
                             const Hints& hints) noexcept;
  /// For a progress hook inside the MPI: a turn of each lane with a free lock, up to about these
  /// limits. Of long messages it reads `bytes_max` bytes; later turns read the rest. Runs no
  /// handler of the program. @return records and completions served
  std::uint32_t try_progress(std::uint32_t records_max, std::uint64_t bytes_max) noexcept;
  Communicators& communicators() noexcept { return communicators_; }

  // For lanes by tag.
  bool has_lanes_by_tag() const noexcept { return options_.lane.packets.pushes; }
  bool can_use_lanes_by_tag() const noexcept { return pool_.count_max() >= 2 && can_push(); }
  /// As Options::lanes_by_tag. @pre no lane and no communicator has been made
  void use_lanes_by_tag() noexcept { options_.lane.packets.pushes = can_push(); }
  /// Null: it is not made. acquire: pairs with lane_of()'s release.
  MessageLane* find_lane(std::uint32_t index) const noexcept {
    return made_[index].load(std::memory_order_acquire);
  }
  /// The same. If it is null, a thread that makes the lane later knows of all that the caller has
  /// done before.
  MessageLane* made_lane(std::uint32_t index) noexcept {
    MessageLane* const made = find_lane(index);
    return made != nullptr ? made : made_lane_slow(index);
  }
  /// A thread that makes progress on `by` calls ByTag::turn() of the communicator, without a lock.
  /// @pre the caller has a use of it
  void wake(Communicator& communicator, MessageLane& by) noexcept;
  void wake_by_all(Communicator& communicator) noexcept;
  void serve_woken(MessageLane& by) noexcept;
  /// The pair has a backlog: drain_backlogs() tries it.
  void list_backlog(Pair& pair) noexcept;
  /// @return true: none is left
  bool drain_backlogs() noexcept;

  std::uint32_t lane_count_max() const noexcept { return pool_.count_max(); }
  /// Lanes that exist.
  std::uint32_t lane_count() const noexcept {
    return static_cast<std::uint32_t>(std::ranges::count_if(
        made_, [](const auto& lane) { return lane.load(std::memory_order_relaxed) != nullptr; }));
  }
  /// Takes each lane's lock once: returns when no callback of before runs any more.
  void with_each_lane_idle() noexcept {
    pool_.for_each([](vci::Vci& vci) { vci.exclusively([] {}); });
  }
  /// Gives back a message's memory. Its sender learns nothing.
  static void free_message(Operation& message) noexcept;
  /// Frees the messages without a receive, and finishes the receives without a message.
  static void empty(MatchingEngine& space) noexcept;

  Result<LocalRegion*> add_region(void* start, std::uint64_t bytes) noexcept;
  /// A region of zeroed memory, which peers on this host map where the network has such memory.
  Result<LocalRegion*> allocate_region(std::uint64_t bytes) noexcept;
  void remove_region(LocalRegion& region) noexcept;
  /// Null: no such region, or the bytes are outside of it. The caller holds a lane's lock while it
  /// uses them.
  std::byte* find(std::uint32_t number, std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// Null: the bytes are outside of the region.
  const net::Memory* memory_of(const Region& region, const void* start,
                               std::uint64_t bytes) const noexcept;
  std::uint64_t offset_in(const Region* region, const void* start) const noexcept;
  /// A thread holds this lock to add doubles to a stripe, so lanes with sums for one stripe take
  /// turns. With a lane's lock held.
  SpinLock& lock_of_stripe(std::uintptr_t stripe) noexcept {
    return stripe_locks_[stripe % kStripeLocks].lock;
  }
  /// Count of operations with registered memory of their own and, in the high half, of those that
  /// have freed theirs. relaxed, all: numbers.
  std::uint64_t registrations() const noexcept {
    return registrations_.load(std::memory_order_relaxed);
  }
  void note_registered() noexcept { registrations_.fetch_add(1, std::memory_order_relaxed); }
  void note_given_back() noexcept {
    registrations_.fetch_add((std::uint64_t{1} << 32) - 1, std::memory_order_relaxed);
  }
  bool has_registered() const noexcept { return (registrations() & UINT32_MAX) != 0; }
  /// Has another operation had registered memory since registrations() returned `before`? @param
  /// own  the caller's number of registrations
  bool have_others_registered(std::uint64_t before, std::uint32_t own) const noexcept {
    const std::uint64_t now = registrations();
    return (before & UINT32_MAX) != 0 || now >> 32 != before >> 32 || (now & UINT32_MAX) > own;
  }

 private:
  bool can_push() const noexcept;
  std::uint32_t take_turn(MessageLane& own) noexcept;
  std::uint32_t poll_idle_slow(MessageLane& own) noexcept;
  /// State of a rank. Thread safety: thread-safe.
  struct Peer {
    std::atomic<bool> is_lost{false};
    Status why;                                               // written before is_lost
    std::unique_ptr<std::atomic<Connection*>[]> connections;  // by link
    std::unique_ptr<Pair> pair;                               // with lanes by tag
  };
  static constexpr std::uint32_t kPagePeers = 256;
  using Page = std::array<std::atomic<Peer*>, kPagePeers>;

  /// A thread's view of the lanes that it does not use.
  struct Others {
    vci::SharedTurns turns;
    std::uint64_t strays = 0;  // one bit for each lane
    std::uint32_t looks = 0;
  };
  static thread_local constinit Others others_;

  Result<std::uint32_t> find_place(Use use) noexcept;
  bool is_owned(std::uint32_t index) noexcept;
  void leave(std::uint32_t index) noexcept;
  net::Receiver& of_lane(std::uint32_t index) override { return lanes_[index]->packets(); }
  bool is_lost_slow(int rank) const noexcept;
  MessageLane* made_lane_slow(std::uint32_t index) noexcept;
  std::uint32_t progress_others_slow(const MessageLane& own, Others& others) noexcept;
  Peer* find_peer(int rank) const noexcept {
    const auto at = static_cast<std::uint32_t>(rank);
    // acquire, here and below: pairs with make_peer_locked()'s and make_connection_slow()'s release
    const Page* const page = pages_[at / kPagePeers].load(std::memory_order_acquire);
    return page == nullptr ? nullptr : (*page)[at % kPagePeers].load(std::memory_order_acquire);
  }
  Connection* find_connection(int rank, std::uint32_t number) const noexcept {
    const Peer* const peer = find_peer(rank);
    return peer == nullptr ? nullptr : peer->connections[number].load(std::memory_order_acquire);
  }
  /// Calls visit(Connection&) for each.
  template <class Visit>
  void for_each_connection(Visit&& visit) const;
  Result<LocalRegion*> add_region(std::unique_ptr<net::Memory> memory, std::byte* start,
                                  std::uint64_t bytes) noexcept;
  Peer* make_peer_locked(int rank) noexcept;
  Connection* make_connection_slow(int rank, std::uint32_t number, bool is_wanted) noexcept;
  MatchingEngine* make_space_slow(MatchSpace space) noexcept;

  net::Fabric& fabric_;
  CompletionDomain& domain_;
  Connector& connector_;
  Options options_;  // constant once a lane has been made
  const std::uint32_t record_bytes_max_;
  const std::uint32_t eager_bytes_max_;
  const std::uint32_t small_bytes_max_;
  const bool asks_for_writes_;
  std::atomic<bool> has_lost_{false};           // a rank is lost
  std::atomic<std::uint64_t> next_look_ns_{0};  // for stalls
  std::atomic<bool> is_looking_{false};         // a thread has the turn to look
  const std::unique_ptr<std::atomic<Page*>[]> pages_;
  std::atomic<std::uint32_t> links_end_{0};  // above the number of each connection's link
  std::array<std::array<std::atomic<MatchingEngine*>, kSpaces>, 2> spaces_{};

  std::mutex mutex_;  // guards the making of lanes, peers, connections, spaces and regions
  std::array<std::unique_ptr<MessageLane>, vci::VciPool::kCountMax> lanes_;
  std::array<std::atomic<MessageLane*>, vci::VciPool::kCountMax> made_{};
  vci::VciPool pool_;
  static constexpr std::uint32_t kOwned = 1u << 31;  // users of a lane with an owner thread
  std::array<std::uint32_t, vci::VciPool::kCountMax> users_{};  // guarded by mutex_

  std::byte no_bytes_[1] = {};
  std::array<std::atomic<LocalRegion*>, kRegionsMax> regions_{};
  std::array<std::uint32_t, kRegionsMax> region_uses_{};  // guarded by mutex_
  std::atomic<std::uint64_t> registrations_{0};
  static constexpr std::uintptr_t kStripeLocks = 64;
  struct alignas(64) StripeLock {
    SpinLock lock;
  };
  std::array<StripeLock, kStripeLocks> stripe_locks_;
  SpinLock woken_lock_;
  Communicator* woken_ = nullptr;  // guarded by woken_lock_
  SpinLock backlogs_lock_;
  Pair* backlogs_ = nullptr;            // guarded by backlogs_lock_
  Communicators communicators_{*this};  // ends before the lanes
  const Maker maker_{};
};

}  // namespace larklane::msg
