#pragma once
// What a process has of the library: the context, the lanes (virtual communication interfaces) on
// which it posts, and memory that its peers may use.

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

/// Memory of some process that others may put to, get from and change by atomics, until it is
/// freed. Plain bytes: send it to whom it concerns. Thread safety: immutable.
struct RemoteRegion {
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;  ///< the network's
  std::uint64_t key = 0;      ///< the network's
  std::int32_t rank = -1;     ///< whose
  std::uint32_t number = 0;   ///< there
};

/// Memory of this process that the network knows: peers may use it, and what is sent from it, or
/// received into it, need not be registered for each operation.
/// Thread safety: immutable; making, moving, freeing and destroying it are its owner's.
class LARKLANE_API Region {
 public:
  Region(Region&& other) noexcept : inside_(std::exchange(other.inside_, nullptr)) {}
  Region& operator=(Region&& other) noexcept {
    Region taken(std::move(other));
    std::swap(inside_, taken.inside_);
    return *this;
  }
  /// What peers' records do in it is over when this returns, and what comes later is refused: waits
  /// for each lane's lock once, makes no progress. Puts and gets that are the network's may be in
  /// it for a moment longer: have peers say that theirs are complete. @pre no operation of this
  /// process uses it
  ~Region();

  /// What peers need.
  RemoteRegion remote() const noexcept;
  explicit Region(msg::LocalRegion& inside) noexcept : inside_(&inside) {}  ///< the library's
  msg::LocalRegion* inside() const noexcept { return inside_; }             ///< the library's

 private:
  msg::LocalRegion* inside_;
};

struct VciOptions {
  /// A lane that nobody else has, without a lock: for the thread that makes it. Only that thread
  /// posts on it, and makes progress of it: what comes there waits for that thread, also while
  /// others are in fence(). A debug build of the library ends the process where another thread
  /// does; elsewhere each such call takes microseconds. Where the kernel has no membarrier(2), the
  /// lock stays.
  bool is_single_threaded = false;
};

/// How often something could not go out over a lane at once, since the lane was made, by reason.
/// Each post that has answered `retry` is counted once, and so is each take_packet() that was empty
/// (no_packet). What the lane keeps (PostOptions::queues), and its answers to peers, may be counted
/// any number of times. Thread safety: immutable.
struct RetryCounts {
  std::uint64_t not_connected = 0;  ///< the peer is not yet
  std::uint64_t no_room = 0;        ///< in the peer's ring: it does not keep up
  std::uint64_t no_packet = 0;      ///< of the lane's: all are under way, or the program's
  std::uint64_t no_operation = 0;   ///< as many are in flight as may be
  std::uint64_t no_memory = 0;      ///< can be registered before other operations are over
  std::uint64_t behind = 0;         ///< others wait already, to the same process
};

/// A user's place on a lane. Threads with different lanes never meet; there may be more of these
/// than lanes. Thread safety: thread-safe; making, moving and destroying it are its owner's, before
/// the context. Destroyed, it gives its place back; what was posted on it goes on.
class LARKLANE_API Vci {
 public:
  Vci(Vci&& other) noexcept : inside_(std::exchange(other.inside_, nullptr)) {}
  Vci& operator=(Vci&& other) noexcept {
    Vci taken(std::move(other));
    std::swap(inside_, taken.inside_);
    return *this;
  }
  ~Vci();

  /// Serve what has come, on this lane, and now and then on all but single threads': what one waits
  /// for may hang on a lane that nobody else looks at. One that nobody serves as his own is served
  /// as often as this one while something comes there. Never blocks. Runs handlers.
  ///
  /// @return  how much was served; 0: nothing, or another thread is at it
  std::uint32_t progress() noexcept;

  /// Not of one that was moved from: then posts answer kInvalidArgument, and progress() 0.
  bool is_open() const noexcept { return inside_ != nullptr; }
  explicit Vci(msg::MessageLane& inside) noexcept : inside_(&inside) {}  ///< the library's
  /// Bytes of the longest message that is copied, and `done`: a longer one is its sender's to keep
  /// until its completion. At least 64; the same for all lanes; option message_eager_max.
  std::uint64_t eager_bytes_max() const noexcept;
  /// Bytes of a Packet, whatever is copied of other messages.
  std::uint64_t packet_bytes_max() const noexcept;
  /// Of its lane, which others may use, too. Thread-safe; some loads.
  RetryCounts retry_counts() const noexcept;

  msg::MessageLane& inside() const noexcept { return *inside_; }  ///< the library's

 private:
  msg::MessageLane* inside_;
};

/// One process of a job, as the library has it. All that is made of it is destroyed before it.
/// Thread safety: thread-safe.
class LARKLANE_API Context {
 public:
  /// As the environment says (`larklane launch`, PMIx, LARKLANE_RANK ...); alone, if it says
  /// nothing. One in the life of a process.
  ///
  /// @param problem  what is wrong, for people: names the variable, the rank, the remedy
  /// @errors  kBadOption; kUnreachable, kSystem, kNoMemory, kNoThread
  static Result<std::unique_ptr<Context>> create(std::string* problem);
  /// Of a program that knows its processes.
  static Result<std::unique_ptr<Context>> create(boot::Peers peers, std::string* problem);
  /// Waits, for some seconds at most, until what this process has sent is out, and says goodbye.
  /// Receives that are still posted are dropped: nobody is told. Messages that nobody has received
  /// are lost. In a forked child this and the other destructors do nothing (docs/user/messages.md).
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  CompletionDomain& completions() noexcept;
  /// Returns when all processes have called it as often; makes progress meanwhile, but not on lanes
  /// that are other threads' (VciOptions).
  Status fence(std::string* problem);

  /// A place on the lane with the fewest; no collective call.
  /// @errors kNoMemory, kSystem: of the network. kNoMemory with EBUSY: there is no lane that could
  ///   be had: more than `vci_count_max` are wanted, some of them by single threads
  Result<Vci> create_vci(const VciOptions& options = {});
  /// @param bytes  0 is legal @errors kNoMemory (locked memory), kSystem
  Result<Region> register_region(void* start, std::uint64_t bytes);

  msg::Engine& inside() noexcept;  ///< the library's

 private:
  struct LARKLANE_HIDDEN Inside;
  explicit Context(std::unique_ptr<Inside> inside) noexcept;
  std::unique_ptr<Inside> inside_;
};

}  // namespace larklane
