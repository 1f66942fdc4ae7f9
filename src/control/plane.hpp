#pragma once
// The control plane of one host: sockets between processes and the helper thread that serves them.
// It carries records (INIT, ACCEPT, CLOSE ... : src/part decides what they mean) and file
// descriptors, and notices dead peers. No MPI call is made here.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace larklane::control {

/// Name of a process's abstract unix socket, without the leading NUL; at most kAddressBytes - 1
/// characters.
using Address = std::string;
inline constexpr std::size_t kAddressBytes = 96;

inline constexpr std::size_t kRecordBytesMax = 8192;  ///< payload of one record
inline constexpr std::size_t kRecordFdsMax = 4;       ///< descriptors with one record

/// One process that we talk to. Owned by the plane, lives as long as it.
/// Thread safety: thread-safe.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual const Address& address() const noexcept = 0;
  /// Process id as seen from here; 0 if it lives in a pid namespace that we can't see.
  virtual pid_t pid() const noexcept = 0;
  /// The process is this one (self channel, or another plane of the same process in tests).
  virtual bool same_process() const noexcept = 0;
  /// The process is gone (hang-up or pidfd). Never becomes false again.
  virtual bool is_down() const noexcept = 0;
  /// The process has ended, so nothing of it stores into shared memory any more. A peer may be down
  /// long before: whoever breaks the protocol lives on. Makes a system call.
  virtual bool has_ended() = 0;
  /// Queue one record. First in, first out per peer, whatever thread calls. Never blocks: what the
  /// socket does not take at once is kept and sent by the helper. Descriptors are duplicated by the
  /// kernel; the caller keeps its own.
  /// @errors  kInvalidArgument (too large, or not a descriptor); kPeerDown or, where the reason is
  ///          known, kVersion, kProtocol, kForeignUser; kNoMemory: the peer takes nothing and
  ///          64 MiB are queued; kSystem
  virtual Status send(std::uint16_t kind, std::span<const std::byte> payload,
                      std::span<const int> fds = {}) = 0;
};

/// What a record looks like to its receiver. Valid during the call only. The payload is aligned to
/// 8 bytes.
struct Record {
  std::uint16_t kind;
  std::span<const std::byte> payload;
  std::span<UniqueFd> fds;  ///< move from them to keep them
};

/// Called on the helper thread only, one call at a time, with no lock of the plane held: it may
/// call Peer::send and Plane::connect. Calls may come before Plane::create has returned and until
/// ~Plane has.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void on_record(Peer& from, const Record& record) = 0;
  /// Once per peer, whether it died, left or broke the protocol; every record that it had sent has
  /// been delivered before.
  virtual void on_peer_down(Peer& peer) = 0;
};

/// A bound, listening abstract socket. Made early (before MPI_Init returns), long before there is a
/// helper: until then connections and their records wait in the backlog.
struct Listener {
  Address address;
  UniqueFd fd;
  /// @errors kSystem (EADDRINUSE: another process has the name)
  static Result<Listener> bind(Address address);
};

struct PlaneCounters {
  std::uint64_t helper_wakeups;  ///< times epoll_wait returned
  std::uint64_t records_sent;
  std::uint64_t records_received;
};

/// Sockets, helper thread, peers. Thread safety: thread-safe.
class Plane {
 public:
  /// Starts the helper: all signals blocked, affinity = the process's whole set, name "larklane".
  /// @param own  1 to 4; the first is the address that peers are told, the others are aliases
  ///             served by the same helper. This process may have inherited them: peers take it
  ///             for the one that serves them from now on
  /// @errors kNoThread, kSystem, kInvalidArgument (number of addresses)
  static Result<std::unique_ptr<Plane>> create(std::vector<Listener> own, Handler& handler);
  /// Stops and joins the helper after what is queued has been sent (at most 2 s), then
  /// closes all sockets.
  virtual ~Plane() = default;

  /// The peer at `address`; connects on the first call (non-blocking for the peer: a backlog
  /// suffices). One process is one peer if it is always called by the same name, or once it has
  /// connected to us. Where descriptors or memory are short, the helper connects later.
  /// @errors kUnreachable (nobody listens), kForeignUser, kSystem, kInvalidArgument (no address)
  virtual Result<Peer*> connect(const Address& address) = 0;
  /// Run `work` on the helper thread, in order. Rings the bell: not for the common path.
  virtual void post(std::function<void()> work) = 0;
  virtual const Address& own_address() const noexcept = 0;
  virtual PlaneCounters counters() const noexcept = 0;
};

}  // namespace larklane::control
