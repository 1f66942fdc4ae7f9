#pragma once
// The context of a process, its lanes (virtual communication interfaces), to which operations are
// posted, and registered memory that peers may access.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "larklane/boot.hpp"
#include "larklane/completion.hpp"
#include "larklane/export.h"
#include "larklane/status.hpp"

namespace larklane {

namespace msg {
class Engine;
class MessageLane;
struct LocalRegion;
}  // namespace msg

/// Names the memory of one process to others, for puts, gets and atomics until it is freed. Plain
/// bytes: the owner sends it to the peers that need it. Thread safety: immutable.
struct RemoteRegion {
  std::uint64_t bytes = 0;    ///< its length
  std::uint64_t address = 0;  ///< the network's
  std::uint64_t key = 0;      ///< the network's
  std::int32_t rank = -1;     ///< of its owner
  std::uint32_t number = 0;   ///< in its owner's table
};

/// Memory of this process, registered with the network. Peers may access it, and messages sent from
/// it or received into it need no registration of their own.
/// Thread safety: immutable; only its owner makes, moves and destroys it.
class LARKLANE_API Region {
 public:
  /// Leaves `other` empty.
  Region(Region&& other) noexcept : inside_(std::exchange(other.inside_, nullptr)) {}
  /// Destroys the former region.
  Region& operator=(Region&& other) noexcept {
    Region taken(std::move(other));
    std::swap(inside_, taken.inside_);
    return *this;
  }
  /// Waits for each lane's lock once, and makes no progress. When it returns, records of peers no
  /// longer access the memory, and later ones are refused. Puts and gets that the network carries
  /// out may access it for a moment longer: have peers confirm that theirs are complete.
  /// @pre no operation of this process uses it
  ~Region();

  /// The name of the region for peers.
  RemoteRegion remote() const noexcept;
  /// Its first byte. Of no bytes: any address.
  void* start() const noexcept;
  /// Its length.
  std::uint64_t bytes() const noexcept;
  explicit Region(msg::LocalRegion& inside) noexcept : inside_(&inside) {}  ///< the library's
  msg::LocalRegion* inside() const noexcept { return inside_; }             ///< the library's

 private:
  msg::LocalRegion* inside_;
};

/// Options of Context::create_vci(). Thread safety: immutable.
struct VciOptions {
  /// An exclusive lane without a lock, for the thread that makes it. Only that thread posts to it
  /// and makes progress on it: arriving messages wait for that thread, also while others are in
  /// fence(). If another thread uses the lane, a debug build of the library ends the process; other
  /// builds spend microseconds on each such call. If the kernel has no membarrier(2), the lock
  /// stays.
  bool is_single_threaded = false;
};

/// Counts of sends that could not leave a lane at once, since the lane was made, by reason. Each
/// post that returned `retry`, and each take_packet() that returned none (no_packet), counts once.
/// Posts that the lane keeps (PostOptions::queues), and its answers to peers, may count any number
/// of times. Thread safety: immutable.
struct RetryCounts {
  std::uint64_t not_connected = 0;  ///< the peer is not connected yet
  std::uint64_t no_room = 0;        ///< the peer's ring is full: the peer does not keep up
  std::uint64_t no_packet = 0;      ///< all packets of the lane are in flight, or the program's
  std::uint64_t no_operation = 0;   ///< the limit of operations in flight is reached
  std::uint64_t no_memory = 0;      ///< no memory can be registered until other operations end
  std::uint64_t behind = 0;         ///< others to the same process wait already
};

/// A user's place on a lane. Threads with different lanes never contend; several places may share
/// a lane. Thread safety: thread-safe; only its owner makes, moves and destroys it, before the
/// context. Operations posted on a destroyed place go on.
class LARKLANE_API Vci {
 public:
  /// Leaves `other` closed.
  Vci(Vci&& other) noexcept : inside_(std::exchange(other.inside_, nullptr)) {}
  /// Gives the former place back.
  Vci& operator=(Vci&& other) noexcept {
    Vci taken(std::move(other));
    std::swap(inside_, taken.inside_);
    return *this;
  }
  ~Vci();  ///< gives the place back

  /// Make progress: serve arrivals and completions of this lane. Now and then the call also serves
  /// all other lanes except single threads', since an awaited message may arrive on a lane that no
  /// other thread polls. A lane without a thread of its own is served as often as this one, while
  /// messages arrive there. Never blocks. Runs handlers.
  ///
  /// @return  number of events served; 0: none, or another thread serves the lane
  /// @threads thread-safe
  std::uint32_t progress() noexcept;

  /// False after a move from it: then posts return kInvalidArgument, and progress() 0.
  bool is_open() const noexcept { return inside_ != nullptr; }
  explicit Vci(msg::MessageLane& inside) noexcept : inside_(&inside) {}  ///< the library's
  /// Bytes of the longest message that is copied, and `done`. The sender keeps the buffer of a
  /// longer one until its completion. At least 64; the same for all lanes; option
  /// message_eager_max. Thread-safe.
  std::uint64_t eager_bytes_max() const noexcept;
  /// Bytes of a Packet, independent of eager_bytes_max(). Thread-safe.
  std::uint64_t packet_bytes_max() const noexcept;
  /// Counts of its lane, which other users may share. Thread-safe; some loads.
  RetryCounts retry_counts() const noexcept;

  msg::MessageLane& inside() const noexcept { return *inside_; }  ///< the library's

 private:
  msg::MessageLane* inside_;
};

/// This process as a member of a job. All objects made from it are destroyed before it.
/// Thread safety: thread-safe.
class LARKLANE_API Context {
 public:
  /// Join the job that the environment names (`larklane launch`, PMIx, LARKLANE_RANK ...); without
  /// one, be alone. Once in the life of a process.
  ///
  /// @param[out] problem  text of the error: names the variable, the rank, the remedy
  /// @errors  kBadOption; kUnreachable, kSystem, kNoMemory, kNoThread
  /// @cost    waits for the other processes, for a bounded time
  static Result<std::unique_ptr<Context>> create(std::string* problem);
  /// Join the job of `peers`, for a program that knows its processes.
  ///
  /// @errors  as above; kInvalidArgument: no all-gather, or rank and size that make no sense
  static Result<std::unique_ptr<Context>> create(boot::Peers peers, std::string* problem);
  /// Waits, for some seconds at most, until all sends of this process have left, then takes leave
  /// of its peers. Posted receives are dropped without a completion. Messages not received are
  /// lost. In a forked child this and the other destructors do nothing (docs/user/messages.md).
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int rank() const noexcept;                 ///< of this process, 0 <= rank() < size()
  int size() const noexcept;                 ///< number of processes
  CompletionDomain& completions() noexcept;  ///< where completion objects are made
  /// Barrier: returns when all processes have called it equally often. Makes progress meanwhile,
  /// except on lanes of other single threads (VciOptions).
  ///
  /// @errors  kPeerDown and others: a process is gone
  /// @cost    blocks
  Status fence(std::string* problem);

  /// Make a place on the lane with the fewest places. Not collective.
  ///
  /// @errors  kNoMemory, kSystem: from the network. kNoMemory with EBUSY: no lane is available,
  ///          since more than `vci_count_max` are wanted, some of them by single threads
  Result<Vci> create_vci(const VciOptions& options = {});
  /// Register memory with the network.
  ///
  /// @param start  first byte, host memory
  /// @param bytes  0 is legal
  /// @errors  kNoMemory (locked memory), kSystem
  /// @owns    the memory stays in place until the region is destroyed
  Result<Region> register_region(void* start, std::uint64_t bytes);
  /// Allocate memory and register it: zeroed, aligned to 64 bytes at least, freed with the region.
  /// Processes of this host map it over provider `shm`: there a put or get that needs neither a
  /// signal nor a completion is a store or load, and `done`. 8 bytes at a multiple of 8 travel as a
  /// whole, with release and acquire. A forked child shares the memory with its parent.
  ///
  /// @param bytes  0 is legal
  /// @errors  kNoMemory, kSystem
  Result<Region> allocate_region(std::uint64_t bytes);

  msg::Engine& inside() noexcept;  ///< the library's

 private:
  struct LARKLANE_HIDDEN Inside;
  explicit Context(std::unique_ptr<Inside> inside) noexcept;
  std::unique_ptr<Inside> inside_;
};

}  // namespace larklane
