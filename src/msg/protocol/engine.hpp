#pragma once
// The message engine of one process: its lanes, its way to each peer, the spaces in which messages
// are matched, and the memory that peers may use.

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
#include "msg/protocol/connection.hpp"
#include "msg/protocol/message_lane.hpp"
#include "msg/protocol/wire.hpp"
#include "net/provider.hpp"
#include "vci/mapping.hpp"
#include "vci/vci_pool.hpp"

namespace larklane::msg {

/// Who connects lanes. Thread safety: thread-safe.
class Connector {
 public:
  virtual ~Connector() = default;
  /// Link `number` to `rank` is wanted: Connection::begin() or refuse() will be called. Never
  /// blocks; once for each.
  virtual void want(int rank, std::uint32_t number) = 0;
  /// By a thread that has polled in vain for long: control::Plane::look_at_descriptors().
  virtual void look_at_descriptors() {}
};

/// What Region is. Thread safety: immutable.
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
// 2. A region that a peer's record is using is not freed: find() is called with a lane's lock held,
//    and who frees a region takes every lane's lock once after it can't be found any more.
class Engine final : private vci::VciPool::Receivers {
 public:
  /// Who moves the bytes of a long message: its receiver, by reads, or its sender, who is asked for
  /// it, where can_ask_for_writes(). `chosen`: the sender where the peer's software serves a read
  /// in any case. (docs/design/protocols/messages.md, "Eager and rendezvous")
  enum class Rendezvous : std::uint8_t { chosen, read, write };
  struct Options {
    int rank = 0;
    int size = 1;
    vci::VciPool::Options lanes{};
    MessageLane::Options lane{};
    /// And no more than a record holds. Of users 64 or more.
    std::uint32_t eager_bytes_max = UINT32_MAX;
    Rendezvous rendezvous = Rendezvous::chosen;
  };
  static constexpr std::uint32_t kRegionsMax = 1u << 12;
  static constexpr std::uintptr_t kStripeBytes = 1024;

  Engine(net::Fabric& fabric, CompletionDomain& domain, Connector& connector, Options options);
  /// Nothing is in flight; no link leads to a lane.
  ~Engine() override;

  net::Fabric& fabric() const noexcept { return fabric_; }
  CompletionDomain& domain() const noexcept { return domain_; }
  /// False in a forked child, where nothing of it may be used. A system call.
  bool is_made_here() const noexcept { return maker_.is_this_process(); }
  int rank() const noexcept { return options_.rank; }
  int size() const noexcept { return options_.size; }
  std::uint32_t record_bytes_max() const noexcept { return record_bytes_max_; }
  std::uint32_t eager_bytes_max() const noexcept { return eager_bytes_max_; }
  std::uint32_t small_bytes_max() const noexcept { return small_bytes_max_; }
  bool asks_for_writes() const noexcept { return asks_for_writes_; }
  /// Their immediates need no reserve: a long message's would have to have one.
  static bool can_ask_for_writes(const net::Limits& limits) noexcept {
    return limits.immediates_max == 0;
  }

  enum class Use : std::uint8_t { shared, own_thread };
  /// A place on the lane that has the fewest; or one that nobody has, for the calling thread alone.
  /// @errors those of MessageLane and Vci::create; kNoMemory (EBUSY): all are taken
  Result<MessageLane*> take_lane(Use use = Use::shared);
  /// The place that take_lane() has given.
  void give_back(const MessageLane& lane) noexcept;
  /// Of link `number`, made if it is not there. @errors as take_lane()
  Result<MessageLane*> lane_of(std::uint32_t number);
  /// `other`, if that has not been made. acquire: pairs with lane_of()'s release.
  MessageLane& first_lane(MessageLane& other) const noexcept {
    MessageLane* const first = made_[0].load(std::memory_order_acquire);
    return first == nullptr ? other : *first;
  }
  std::uint32_t progress(MessageLane& own) noexcept;
  std::uint32_t progress_all() noexcept;

  /// The way from `lane` to `rank`: made, and wanted, if it is not there. Null: no memory.
  /// @pre 0 <= rank < size
  Connection* connection(MessageLane& lane, int rank) noexcept {
    if (Connection* const found = find_connection(rank, lane.index())) [[likely]]
      return found;
    return make_connection_slow(rank, lane.index(), true);
  }
  /// Of a link that a peer wants. @pre as above, of a lane that is there
  Connection* connection_of_link(int rank, std::uint32_t number) noexcept;

  /// Link `number` to `rank` will never be.
  void refuse(int rank, std::uint32_t number, Status status) noexcept;
  /// What was posted is out.
  bool is_quiet() const noexcept;
  /// Packets that users have.
  std::uint32_t held_packet_count() const noexcept;
  /// Nothing more comes from `rank`.
  void lose(int rank, Status status) noexcept;
  bool is_lost(int rank) const noexcept;
  Status why_lost(int rank) const noexcept;

  /// Null: no memory.
  MatchingEngine* space(MatchSpace space) noexcept {
    // acquire: pairs with make_space_slow()'s release.
    MatchingEngine* const made =
        spaces_[space.is_ordered][space.number].load(std::memory_order_acquire);
    return made != nullptr ? made : make_space_slow(space);
  }

  Result<LocalRegion*> add_region(void* start, std::uint64_t bytes) noexcept;
  void remove_region(LocalRegion& region) noexcept;
  /// Null: there is none, or not there. With a lane's lock held, as long as it is used.
  std::byte* find(std::uint32_t number, std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// Null: they are not in it.
  const net::Memory* memory_of(const Region& region, const void* start,
                               std::uint64_t bytes) const noexcept;
  std::uint64_t offset_in(const Region* region, const void* start) const noexcept;
  /// Of one of them doubles are added to by who holds this: lanes that add to the same ones do so
  /// one after the other. With a lane's lock held.
  SpinLock& lock_of_stripe(std::uintptr_t stripe) noexcept {
    return stripe_locks_[stripe % kStripeLocks].lock;
  }
  /// Of operations' own memory: how many have some and, in the high half, how many have given
  /// theirs back. relaxed, all: numbers.
  std::uint64_t registrations() const noexcept {
    return registrations_.load(std::memory_order_relaxed);
  }
  void note_registered() noexcept { registrations_.fetch_add(1, std::memory_order_relaxed); }
  void note_given_back() noexcept {
    registrations_.fetch_add((std::uint64_t{1} << 32) - 1, std::memory_order_relaxed);
  }
  bool has_registered() const noexcept { return (registrations() & UINT32_MAX) != 0; }
  /// Have others had some at any time since registrations() said `before`? @param own  the caller's
  bool have_others_registered(std::uint64_t before, std::uint32_t own) const noexcept {
    const std::uint64_t now = registrations();
    return (before & UINT32_MAX) != 0 || now >> 32 != before >> 32 || (now & UINT32_MAX) > own;
  }

 private:
  /// What is known of a rank. Thread safety: thread-safe.
  struct Peer {
    std::atomic<bool> is_lost{false};
    Status why;                                               // written before is_lost
    std::unique_ptr<std::atomic<Connection*>[]> connections;  // by link
  };
  static constexpr std::uint32_t kPagePeers = 256;
  using Page = std::array<std::atomic<Peer*>, kPagePeers>;

  /// What a thread knows of lanes that are not its own.
  struct Others {
    vci::SharedTurns turns;
    std::uint64_t strays = 0;  // a bit a lane
    std::uint32_t looks = 0;
  };

  Result<std::uint32_t> find_place(Use use) noexcept;
  bool is_owned(std::uint32_t index) noexcept;
  void leave(std::uint32_t index) noexcept;
  net::Receiver& of_lane(std::uint32_t index) override { return lanes_[index]->packets(); }
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
  /// visit(Connection&), for all.
  template <class Visit>
  void for_each_connection(Visit&& visit) const;
  Peer* make_peer_locked(int rank) noexcept;
  Connection* make_connection_slow(int rank, std::uint32_t number, bool is_wanted) noexcept;
  MatchingEngine* make_space_slow(MatchSpace space) noexcept;
  static void empty(MatchingEngine& space) noexcept;

  net::Fabric& fabric_;
  CompletionDomain& domain_;
  Connector& connector_;
  const Options options_;
  const std::uint32_t record_bytes_max_;
  const std::uint32_t eager_bytes_max_;
  const std::uint32_t small_bytes_max_;
  const bool asks_for_writes_;
  const std::unique_ptr<std::atomic<Page*>[]> pages_;
  std::array<std::array<std::atomic<MatchingEngine*>, kSpaces>, 2> spaces_{};

  std::mutex mutex_;  // of who makes something
  std::array<std::unique_ptr<MessageLane>, vci::VciPool::kCountMax> lanes_;
  std::array<std::atomic<MessageLane*>, vci::VciPool::kCountMax> made_{};
  vci::VciPool pool_;
  static constexpr std::uint32_t kOwned = 1u << 31;  // users of a lane that is a thread's
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
  const Maker maker_{};
};

}  // namespace larklane::msg
