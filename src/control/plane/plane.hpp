#pragma once
// The control plane: sockets between processes and the helper thread that serves them, unix sockets
// on one host, TCP between hosts. It carries records (INIT, ACCEPT, CLOSE ... : src/part decides
// what they mean), on one host file descriptors too, and notices dead peers. No MPI call is made
// here.

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
/// Longest time for which Peer::send_later() keeps a record.
inline constexpr std::uint64_t kLaterNs = 2'000'000;

/// One process that we talk to. Owned by the plane, lives as long as it.
/// Thread safety: thread-safe.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual const Address& address() const noexcept = 0;
  /// It is reached over the network: it shares no memory with us and takes no descriptors.
  virtual bool is_remote() const noexcept = 0;
  /// Process id as seen from here; 0 if it lives in a pid namespace that we can't see, or is
  /// remote.
  virtual pid_t pid() const noexcept = 0;
  /// The process is this one (self channel, or another plane of the same process in tests). Never
  /// if it is remote, not even behind an address of our own.
  virtual bool same_process() const noexcept = 0;
  /// The process is gone (hang-up or pidfd). Never becomes false again.
  virtual bool is_down() const noexcept = 0;
  /// Why it is down, for people; for a remote peer with its hosts and the remedy. Empty before.
  virtual std::string down_reason() = 0;
  /// The process has ended, so nothing of it stores into shared memory any more. A peer may be down
  /// long before: whoever breaks the protocol lives on. Makes a system call. A remote peer has no
  /// shared memory to store into, so it has ended once it is down; what its network device may
  /// still write ends with the link, which is the link's owner's to close.
  virtual bool has_ended() = 0;
  /// Queue one record. First in, first out per peer, whatever thread calls. Never blocks: what the
  /// socket does not take at once, or what comes before there is a connection, is kept and sent by
  /// the helper. Descriptors are duplicated by the kernel; the caller keeps its own.
  /// @errors  kInvalidArgument (too large, not a descriptor, descriptors for a remote peer);
  ///          kPeerDown or, where the reason is known, kVersion, kProtocol, kForeignUser,
  ///          kUnreachable; kSystem
  virtual Status send(std::uint16_t kind, std::span<const std::byte> payload,
                      std::span<const int> fds = {}) = 0;
  /// As send(), for a record that nothing waits for yet: it leaves with the next record that is
  /// sent, with flush_later(), or kLaterNs later, by the helper. What has gathered leaves in one
  /// system call; keeping a record makes none, but for the first since the helper's last look.
  /// @errors as send(), of what is known already: that the peer is gone may show only later
  virtual Status send_later(std::uint16_t kind, std::span<const std::byte> payload) {
    return send(kind, payload);
  }
  /// What send_later() has kept leaves now.
  virtual void flush_later() {}
  /// False: the peer takes nothing, and 64 MiB wait for it. Begin nothing new with it; records of
  /// what has begun are still sent.
  virtual bool has_room() { return true; }
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
  /// been delivered before. A remote peer to which no connection comes about is reported here, too:
  /// what has been sent to it is lost.
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

/// A bound, listening TCP socket on an ephemeral port. Made early, like a Listener; a process that
/// is forked from this one does not get it.
struct RemoteListener {
  Address address;  ///< what processes of other hosts pass to Plane::connect
  /// Its hosts: with every interface, the addresses of those that are up, IPv4 first, but for
  /// loopback, link-local ones, and what is beyond kHostsMax; loopback's if there is no other.
  std::vector<std::string> hosts;
  UniqueFd fd;
  /// @param name       like a local address: the process's own is a good one
  /// @param interface  of this name, or with this address: the only one that is listened at; empty:
  ///                   every one
  /// @param[out] problem  what failed, for people
  /// @errors kInvalidArgument (no such name, interface or address), kSystem
  static Result<RemoteListener> bind(const std::string& name, const std::string& interface,
                                     std::string* problem);
};

/// What a plane needs in order to reach processes on other hosts and to be reached by them.
struct Remote {
  RemoteListener listener;
  Secret secret;                              ///< the job's: who does not know it is refused
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
  /// @param own  1 to 4; the first is the address that peers are told, the others are aliases
  ///             served by the same helper. This process may have inherited them: peers take it
  ///             for the one that serves them from now on
  /// @param remote  for peers on other hosts; without it there are none
  /// @param accept_ns  how long accept may fail for want of descriptors or memory before peers are
  /// told that this process takes no connections
  /// @errors kNoThread, kSystem, kInvalidArgument (number of addresses)
  static Result<std::unique_ptr<Plane>> create(std::vector<Listener> own, Handler& handler,
                                               std::optional<Remote> remote = std::nullopt,
                                               std::uint64_t accept_ns = 10'000'000'000);
  /// Stops and joins the helper after what is queued has been sent (at most 2 s), then
  /// closes all sockets.
  virtual ~Plane() = default;

  /// The peer at `address`; connects on the first call (non-blocking for the peer: a backlog
  /// suffices). One process is one peer if it is always called by the same name, or once it has
  /// connected to us. Where descriptors or memory are short, the helper connects later.
  /// A remote peer is always connected to by the helper, one host after the other within
  /// connect_ns, and comes back at once: records queue until it is there, and where it never is,
  /// on_peer_down is called. What arrives within connect_ns is only that somebody listens: a peer
  /// without a helper so far may take as long as it likes.
  /// @errors kUnreachable (nobody listens), kForeignUser, kSystem, kInvalidArgument (no address,
  ///         or a remote one, and the plane has been made without `remote`)
  virtual Result<Peer*> connect(const Address& address) = 0;
  /// Run `work` on the helper thread, in order. Rings the bell: not for the common path.
  virtual void post(std::function<void()> work) = 0;
  /// Run `work`, which may take long, on a thread that has less than the program's threads. What
  /// has not begun when the plane goes is dropped.
  virtual void post_spare(std::function<void()> work) = 0;
  virtual const Address& own_address() const noexcept = 0;
  /// Have the helper sleep on it, too, while it is on (watched.hpp). It outlives its watch.
  /// @errors kInvalidArgument: no descriptor
  virtual Status watch(Watched& watched) = 0;
  /// Returns when the helper is not in it and will not be any more; the caller holds nothing that
  /// it may wait for. On the helper, also from within its serve().
  virtual void unwatch(Watched& watched) = 0;
  /// Wakes the helper, and returns after it has served all connections and records that arrived
  /// before the call. The caller holds no lock that the helper may wait for.
  virtual void catch_up() = 0;
  virtual PlaneCounters counters() const noexcept = 0;
  /// By a thread that waits in vain, now and then, with nothing held. If the program has closed the
  /// descriptors of this process, all peers go down, with that as the reason: the helper can't be
  /// woken to see it. A system call.
  virtual void look_at_descriptors() = 0;
};

}  // namespace larklane::control
