#pragma once
// The control plane: sockets between processes and the helper thread that serves them. Processes of
// one host use unix sockets, processes of several hosts TCP. The plane carries records (INIT,
// ACCEPT, CLOSE ...: src/part defines their meaning), on one host also file descriptors, and
// notices dead peers. It makes no MPI call.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/address.hpp"
#include "base/siphash.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "control/helper/watched.hpp"

namespace larklane::control {

using larklane::Address;

inline constexpr std::size_t kRecordBytesMax = 8192;  ///< payload of one record
inline constexpr std::size_t kRecordFdsMax = 4;       ///< descriptors with one record
/// The longest time for which Peer::send_later() keeps a record.
inline constexpr std::uint64_t kLaterNs = 2'000'000;

/// One process that this process has connections with. The plane owns it, and it lives as long as
/// the plane.
/// Thread safety: thread-safe.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual const Address& address() const noexcept = 0;
  /// The network connects the peer: it shares no memory with this process and takes no descriptors.
  virtual bool is_remote() const noexcept = 0;
  /// Process id as seen from here; 0 if its pid namespace is not visible from here, or the peer is
  /// remote.
  virtual pid_t pid() const noexcept = 0;
  /// The peer is this process (self channel, or another plane of the same process in tests). Never
  /// true of a remote peer, not even behind an address of this process.
  virtual bool same_process() const noexcept = 0;
  /// The process is gone (hang-up or pidfd). Never becomes false again.
  virtual bool is_down() const noexcept = 0;
  /// The reason, for people; for a remote peer with its hosts and the remedy. Empty before.
  virtual std::string down_reason() = 0;
  /// The process has ended, so it no longer stores into shared memory. A peer may be down long
  /// before: a process that breaks the protocol lives on. Makes a system call. A remote peer has no
  /// shared memory to store into, so it has ended once it is down. Its network device may still
  /// write until the link's owner closes the link.
  virtual bool has_ended() = 0;
  /// Queues one record. First in, first out per peer, across all calling threads. Never blocks. The
  /// helper sends the bytes that the socket does not take at once, and the records queued before
  /// there is a connection. The kernel duplicates descriptors; the caller keeps its own.
  /// @errors  kInvalidArgument (too large, not a descriptor, descriptors for a remote peer);
  ///          kPeerDown or, where the reason is known, kVersion, kProtocol, kForeignUser,
  ///          kUnreachable; kSystem
  virtual Status send(std::uint16_t kind, std::span<const std::byte> payload,
                      std::span<const int> fds = {}) = 0;
  /// Like send(), for a record that no process waits for yet. The record leaves with the next one
  /// that is sent, with flush_later(), or kLaterNs later, by the helper. All kept records leave in
  /// one system call. Keeping a record makes no system call, except the first since the helper's
  /// last flush.
  /// @errors as send(), as far as already known: the loss of the peer may show only later
  virtual Status send_later(std::uint16_t kind, std::span<const std::byte> payload) {
    return send(kind, payload);
  }
  /// Sends the records that send_later() has kept.
  virtual void flush_later() {}
  /// False: the peer takes nothing, and more than 64 MiB wait for it (queued_peer.cpp). The caller
  /// begins nothing new with it; records of earlier operations are still sent.
  virtual bool has_room() { return true; }
};

/// A record as its receiver gets it. Valid during the call only. The payload is aligned to 8 bytes.
struct Record {
  std::uint16_t kind;
  std::span<const std::byte> payload;
  std::span<UniqueFd> fds;  ///< move from them to keep them
};

/// The helper thread alone calls it, one call at a time, with no lock of the plane held: it may
/// call Peer::send and Plane::connect. Calls may come before Plane::create has returned and until
/// ~Plane has.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void on_record(Peer& from, const Record& record) = 0;
  /// Comes once per peer, whether it died, left or broke the protocol, after every record that it
  /// had sent. It also reports a remote peer to which no connection comes about: records sent to it
  /// are lost.
  virtual void on_peer_down(Peer& peer) = 0;
};

/// A bound, listening abstract socket. The process makes it early (before MPI_Init returns), long
/// before there is a helper. Until then connections and their records wait in the backlog.
struct Listener {
  Address address;
  UniqueFd fd;
  /// @errors kSystem (EADDRINUSE: another process has the name)
  static Result<Listener> bind(Address address);
};

/// A bound, listening TCP socket on an ephemeral port. Made early, like a Listener. A process that
/// is forked from this one does not get it.
struct RemoteListener {
  Address address;  ///< the address that processes of other hosts pass to Plane::connect
  /// Its hosts. With every interface: the addresses of those that are up, IPv4 first, at most
  /// kHostsMax, without loopback and link-local ones. The loopback addresses if there is no other.
  std::vector<std::string> hosts;
  UniqueFd fd;
  /// @param name       like a local address, for example the process's own
  /// @param interface  the name or address of the only interface to listen at; empty: every one
  /// @param[out] problem  the failure, for people
  /// @errors kInvalidArgument (no such name, interface or address), kSystem
  static Result<RemoteListener> bind(const std::string& name, const std::string& interface,
                                     std::string* problem);
};

/// The means to reach processes on other hosts, and to let them reach this process.
struct Remote {
  RemoteListener listener;
  Secret secret;                              ///< the job's: a process without it is refused
  std::uint64_t connect_ns = 10'000'000'000;  ///< option control_connect_ns
  std::uint64_t silence_ns = 30'000'000'000;  ///< option control_silence_ns
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
  /// @param own  1 to 4; the first has the address that peers get, the others are aliases served by
  ///             the same helper. The process may have inherited them: from now on peers take this
  ///             process for the one that serves them
  /// @param remote  for peers on other hosts; without it there are none
  /// @param accept_ns  how long accept may fail for lack of descriptors or memory before peers
  /// learn that this process takes no connections
  /// @errors kNoThread, kSystem, kInvalidArgument (number of addresses)
  static Result<std::unique_ptr<Plane>> create(std::vector<Listener> own, Handler& handler,
                                               std::optional<Remote> remote = std::nullopt,
                                               std::uint64_t accept_ns = 10'000'000'000);
  /// Stops and joins the helper after it has sent the queue (at most 2 s), then
  /// closes all sockets.
  virtual ~Plane() = default;

  /// The peer at `address`. The first call connects and needs no action of the peer: a backlog
  /// suffices. One process is one peer if callers always use the same name, or once it has
  /// connected to this process. If descriptors or memory are short, the helper connects later.
  /// The helper alone connects to a remote peer, one host after the other within connect_ns. The
  /// call returns at once, and records queue until there is a connection. If none comes about, the
  /// helper calls on_peer_down. Within connect_ns the peer has to listen, no more: a peer without a
  /// helper so far may answer at any later time.
  /// @errors kUnreachable (no process listens), kForeignUser, kSystem, kInvalidArgument (no
  /// address,
  ///         or a remote one, and the plane has been made without `remote`)
  virtual Result<Peer*> connect(const Address& address) = 0;
  /// Runs `work` on the helper thread, in order. Rings the bell: not for the common path.
  virtual void post(std::function<void()> work) = 0;
  /// Runs `work`, which may take long, on a thread with a lower share of the processor than the
  /// program's threads. The end of the plane drops work that has not begun.
  virtual void post_spare(std::function<void()> work) = 0;
  virtual const Address& own_address() const noexcept = 0;
  /// The helper also sleeps on `watched` while it is on (watched.hpp). `watched` outlives its
  /// watch.
  /// @errors kInvalidArgument: no descriptor
  virtual Status watch(Watched& watched) = 0;
  /// Returns when the helper is not in `watched` and will not enter it again. The caller holds
  /// nothing that it may wait for. On the helper, also from within its serve().
  virtual void unwatch(Watched& watched) = 0;
  /// Wakes the helper, and returns after it has served all connections and records that arrived
  /// before the call. The caller holds no lock that the helper may wait for.
  virtual void catch_up() = 0;
  virtual PlaneCounters counters() const noexcept = 0;
  /// A thread that waits in vain calls this now and then, with no lock held. If the program has
  /// closed the descriptors of this process, all peers go down, with that as the reason: nothing
  /// can wake the helper to see it. Makes a system call.
  virtual void look_at_descriptors() = 0;
};

}  // namespace larklane::control
