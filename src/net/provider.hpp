#pragma once
// The interface of a network to the layers above: memory that peers may write and read, links to
// their endpoints, operations that complete later, and immediates that arrive. A provider
// implements it: loop (one process, any order), ofi (libfabric), verbs (libibverbs), shm (processes
// of one host).
// `fault` decorates one.
//
// No order: two operations may take effect at the peer in any order, independently of the order of
// their posts. Where one has to follow another, its poster waits for the first one's completion.

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"

namespace larklane::net {

/// Memory of another process, as that process has told us. Travels in control records.
struct RemoteMemory {
  std::uint64_t address;  ///< of its first byte, as the provider counts
  std::uint64_t key;
};

/// Registered memory of this process, until it is destroyed. An operation of a peer that is pending
/// then may still take effect, or fail: the owner destroys it only when there is none, or when its
/// bytes do not matter. The same of AllocatedMemory. Thread safety: immutable.
class Memory {
 public:
  virtual ~Memory() = default;
  /// The key that peers need in order to write or read it.
  virtual RemoteMemory remote() const noexcept = 0;
};

/// Memory of the library's own that peers may write and read, until it is destroyed: it is for
/// bytes that they write often, and lies where that is cheap. No local side of a transfer. Thread
/// safety: immutable.
class AllocatedMemory {
 public:
  virtual ~AllocatedMemory() = default;
  virtual std::byte* start() const noexcept = 0;
  virtual RemoteMemory remote() const noexcept = 0;
};

/// One operation, from post to completion; the poster's memory. Thread safety: single-owner.
struct Operation {
  /// Called once, by the thread that polls the endpoint, with the lane's lock held: never polls,
  /// never waits. A failed operation has moved nothing, or some bytes, or all.
  void (*complete)(Operation& operation, Status status) = nullptr;
  /// Its completion ends a sleep after arm(Wake::needed): something has to follow it, even if no
  /// thread polls.
  bool wakes = true;
  /// Perhaps no post follows it for a while: a provider whose completions report several operations
  /// makes this one report.
  bool is_last = false;
  /// Of a write: the peer looks for its beginning (Limits::first_word_last_bytes_max).
  bool is_looked_for = false;
  /// The provider's, while the operation is pending; of a prepared one until it is posted as
  /// something else.
  std::byte* provider_space[8] = {};
};

/// Memory of a peer that this process has mapped, so that loads and stores reach it. It stays
/// mapped as long as its link exists, also after the peer has withdrawn it or has ended: a late
/// store is harmless to the library. Thread safety: immutable; `registered` points into shared
/// memory.
struct Mapping {
  /// Keys of allocate_mapped() have this bit. Other keys of a provider with such memory have not;
  /// those of other providers are any.
  static constexpr std::uint64_t kKeyBit = std::uint64_t{1} << 63;

  std::byte* start = nullptr;  ///< null: peers can't map this memory
  std::uint64_t address = 0;   ///< of `start`, in RemoteMemory
  std::uint64_t bytes = 0;
  /// Equals `generation` as long as the peer has the memory registered. acquire: pairs with the
  /// peer's withdrawal.
  const std::atomic<std::uint64_t>* registered = nullptr;
  std::uint64_t generation = 0;
};

/// A post that could be made, is complete already, or has to be made again after a poll.
enum class Post : std::uint8_t {
  done,    ///< complete: Operation::complete is not called
  posted,  ///< Operation::complete will be called
  /// The queue is full, and nothing has happened, but that bytes of a write may be there already.
  retry,
};

/// The events that have to end a sleep on Endpoint::wait_fd().
enum class Wake : std::uint8_t {
  all,  ///< each event that a poll would find
  /// Events that can't wait until a thread polls: small immediates of peers, completions of
  /// operations that wake, room for posts that were told to retry. A provider that can't
  /// distinguish them wakes for all. An error of the network may go unheard until then.
  needed,
};

/// Posts the prepared operation: as Link::write_immediate() does.
using PostPrepared = Result<Post> (*)(Operation& operation);

/// The moved bytes: [local, local + bytes) in `memory`, and as many bytes from `remote` on.
struct Transfer {
  std::byte* local;
  const Memory* memory;
  RemoteMemory remote;  ///< address: of the first byte to be moved
  std::uint64_t bytes;
};

/// Abilities of a fabric. Thread safety: immutable.
struct Limits {
  std::uint64_t write_bytes_max;  ///< of one write; longer ones are cut by the poster
  std::uint64_t read_bytes_max;   ///< of one read
  std::uint32_t small_bytes_max;  ///< of write_small; at least 8
  std::uint32_t immediates_max;   ///< that one endpoint can reserve; 0: they need no reserve
  bool is_progress_manual;  ///< operations of peers take effect only while a thread polls here
  std::string provider;     ///< as users know it: "ofi tcp", "verbs mlx5_0 port 1"
  /// 8 bytes at an address that is a multiple of 8 arrive as a whole. Where not (streams of a
  /// socket), their reader waits for an immediate that follows, or distinguishes halves from
  /// wholes.
  bool are_words_whole = true;
  /// Small writes are complete when their post returns, if it does not say retry.
  bool are_small_writes_done = false;
  /// Not 0: applies to writes of 8 bytes up to this many that are is_looked_for, with or without an
  /// immediate. They go to an address in allocated memory, a multiple of 8. The first 8 bytes
  /// arrive last, as a whole; where words are not whole the first 4, maybe one by one. A reader
  /// that knows their expected value, and sees it (acquire; where progress is manual, between
  /// polls, with the lane's lock), may read the others, and needs no immediate. So more immediates
  /// than were reserved may be unheard: those wait at the sender (Post::retry), they fail nothing.
  std::uint64_t first_word_last_bytes_max = 0;
  /// Link::write_small_wide() is there.
  bool has_wide_immediates = false;
  /// Local bytes lie in registered memory, too. Where not, Transfer::memory may be null.
  bool is_local_memory_registered = true;
  /// Links of fabrics with the same one connect across hosts, with any device: "ofi/tcp", "verbs";
  /// no blanks. Empty: it stays within a host.
  std::string network{};
  std::string choices{};  ///< for people: the choice where there was one, and why
  /// An operation that the peer's host does not answer fails after about as long, so a probe shows
  /// whether it is there. 0: none does, or its end is reported without a probe.
  std::uint64_t unanswered_ns = 0;
  /// A link's first operation connects it, on either side. Where both sides' first ones cross,
  /// bytes that one of them has moved may be lost: so one side's comes first, and is a settle().
  bool is_connected_by_use = false;
  /// Not 0: a link carries one channel, of at most so many partitions (Link::carry_only()).
  std::uint32_t channel_partitions_max = 0;
  /// Each post is a system call, of any length: few long writes are worth a copy. So is each poll,
  /// even if it finds nothing.
  bool is_post_system_call = false;
  /// Up to so many bytes, one copy into allocated memory and a read from there cost less together
  /// than a read of other memory.
  std::uint64_t bounce_bytes_max = 0;
  /// Registered memory may be such that the system copies it for no other process though its owner
  /// can use it: an operation on it fails with kTransfer, and only its owner can copy it.
  /// Addresses of registered memory are those of its process.
  bool has_unreadable_memory = false;
  /// Fabric::allocate_mapped() and Link::map() are there.
  bool has_mapped_memory = false;
};

/// Of a link: the other side's carry one channel each and ours many, or the reverse.
inline constexpr Status kUnlikeLinks{Errc::kUnreachable, EPROTOTYPE};

/// The side with the slot that a link with one channel has to name when an immediate comes in.
enum class ChannelHalf : std::uint8_t { send, receive };

/// To one endpoint of one peer. Both sides make one, exchange their offers, and connect.
/// Thread safety: vci-serial.
class Link {
 public:
  virtual ~Link() = default;  ///< it has no pending operation
  /// The argument of the peer's connect(); at most kOfferBytesMax bytes.
  virtual std::span<const std::byte> offer() const noexcept = 0;
  /// From now on the peer may use it. We may, once the peer has connected, too: it says so by a
  /// control record.
  /// @errors kProtocol: no offer of this provider; kUnreachable; kSystem
  virtual Status connect(std::span<const std::byte> peer_offer) = 0;

  /// Where Limits::channel_partitions_max is not 0, and before anything with an immediate is posted
  /// or comes. All operations belong to one channel: its half here has `slot` in this endpoint's
  /// immediates, or gets none.
  virtual void carry_only(ChannelHalf, std::optional<std::uint16_t> /*slot*/,
                          std::uint32_t /*partitions*/) {}

  /// Where a link has several queues for the writes of its one channel: it uses `count` of them, or
  /// all if it has fewer. Before offer() is read. The peer uses as many.
  virtual void use_queues(std::uint32_t /*count*/) {}

  // Posts. An error: nothing has been posted, and the link is of no use any more, unless failure()
  // is ok: then the error is this operation's alone, as the peer does not have its memory.
  virtual Result<Post> write(const Transfer& transfer, Operation& operation) = 0;
  /// When the bytes are there, the peer's `on_immediate` is called, as soon as it polls. 0 bytes
  /// are legal.
  virtual Result<Post> write_immediate(const Transfer& transfer, std::uint32_t immediate,
                                       Operation& operation) = 0;
  /// Work out now the constant part of a write_immediate that is posted again and again.
  /// @return posts it, as often as wanted; null: the provider has nothing to work out, or the
  /// operation wakes
  virtual PostPrepared prepare(const Transfer&, std::uint32_t /*immediate*/, Operation&) {
    return nullptr;
  }
  /// At most small_bytes_max bytes, which are copied before it returns, from any memory.
  virtual Result<Post> write_small(std::span<const std::byte> bytes, RemoteMemory to,
                                   Operation& operation) = 0;
  /// Also wakes the peer, if it sleeps.
  virtual Result<Post> write_small_immediate(std::span<const std::byte> bytes, RemoteMemory to,
                                             std::uint32_t immediate, Operation& operation) = 0;
  /// The same of an immediate of 64 bits, with an upper half that is not 0, where
  /// Limits::has_wide_immediates says so: the peer's `on_wide_immediate` is called.
  virtual Result<Post> write_small_wide(std::span<const std::byte> /*bytes*/, RemoteMemory /*to*/,
                                        std::uint64_t /*immediate*/, Operation&) {
    return Status(Errc::kInvalidArgument);
  }
  virtual Result<Post> read(const Transfer& transfer, Operation& operation) = 0;
  /// The peer's memory behind a key, where Limits::has_mapped_memory says so.
  /// @errors kTransfer: the peer has no such memory; others: it can't be mapped now
  virtual Result<Mapping> map(std::uint64_t /*key*/) { return Errc::kInvalidArgument; }
  /// Completes when the peer's host has answered, which takes none of its processes; touches no
  /// memory. Where Limits::unanswered_ns is 0 it says nothing.
  virtual Result<Post> probe(Operation&) { return Post::done; }

  /// Completes, with any status, when no write that the peer has begun over this link touches
  /// memory of ours that is no longer registered. Also of a link that has failed.
  /// @param there  8 bytes that we may read
  virtual Result<Post> settle(RemoteMemory /*there*/, Operation&) { return Post::done; }

  /// Not ok: every post fails with it.
  virtual Status failure() const noexcept { return {}; }
  /// The peer is gone, or there is no way to it any more: pending operations end within seconds,
  /// and every later post fails with `status`. Nothing needs to be done where both come by itself.
  virtual void end(Status) {}
  /// After end(): nothing that the peer posts over this link reaches memory of ours any more.
  virtual bool is_cut() const noexcept { return false; }

  void* lane_space[3] = {};  ///< the lane's: works that wait for room on this link
};
inline constexpr std::size_t kOfferBytesMax = 512;

/// The receiver of peers' immediates and writes. Called by the polling thread, with the lane's lock
/// held.
class Receiver {
 public:
  virtual ~Receiver() = default;
  /// The bytes of its write are there. acquire: they may be read.
  virtual void on_immediate(std::uint32_t immediate) = 0;
  /// Of Link::write_small_wide().
  virtual void on_wide_immediate(std::uint64_t /*immediate*/) {}
  /// Where the next bytes will be written, if that can be guessed: a provider with these bytes in
  /// its memory may fetch them while it waits for their immediate. Null: unknown.
  const void* expected_bytes = nullptr;
  /// Look at memory that peers write without immediates (Limits::first_word_last_bytes_max).
  /// @param most  about as many @return how many came
  virtual std::uint32_t look(std::uint32_t /*most*/) { return 0; }
  /// Would look() find nothing now? Thread-safe, without the lane's lock: a hint.
  virtual bool looks_empty() const noexcept { return true; }
  /// look() is called before each poll, and behind one that has served nothing where progress is
  /// manual: it may have moved watched bytes.
  bool has_watched = false;
  /// Why a waiting thread should back off first: a poll is dear; or something came, but little, so
  /// more is being written to the same lines; or the peer sends on without an answer.
  enum class Pause : std::uint8_t { none, poll_is_dear, little_came, peer_sends_on };
  /// The thread that backs off resets it. Thread-safe: a hint; relaxed.
  std::atomic<Pause> pause{Pause::none};
  /// Does a thread sleep on the endpoint's wait_fd()? Before it is opened. False: it may have none,
  /// where that makes arrivals cheaper.
  bool sleeps = true;
};

/// One endpoint and its completion queue. Thread safety: vci-serial.
class Endpoint {
 public:
  virtual ~Endpoint() = default;  ///< its links are gone
  virtual Result<std::unique_ptr<Link>> open_link() = 0;
  /// Serve up to `most` completions and immediates; one of a few calls finds them, not always the
  /// first. @return how many. @errors the endpoint is dead: every pending operation has been
  /// completed with the error
  virtual Result<std::uint32_t> poll(std::uint32_t most) = 0;
  /// Would poll() find nothing now? Thread-safe: a hint. False also where only poll() knows.
  virtual bool looks_empty() const noexcept { return false; }
  /// Room for `count` more immediates that peers may send before we poll. A peer that sends no more
  /// than was reserved for it never meets a receiver that is not ready.
  /// @errors kNoMemory: immediates_max is reached
  virtual Status reserve_immediates(std::uint32_t count) = 0;
  virtual void release_immediates(std::uint32_t count) = 0;
  /// A descriptor that is readable when a poll may find something, to sleep on after arm(); -1:
  /// there is none.
  virtual int wait_fd() const noexcept = 0;
  /// Before a sleep on wait_fd(), which ends for `wake`. False: do not sleep, poll.
  virtual bool arm(Wake wake) = 0;
  /// Does each arrival end a sleep now, or only a needed one? Thread-safe: a hint.
  virtual bool does_all_wake() const noexcept { return true; }
};

/// An opened network device. Thread safety: thread-safe.
class Fabric {
 public:
  virtual ~Fabric() = default;  ///< endpoints and memory are gone
  virtual const Limits& limits() const noexcept = 0;
  /// @param bytes  0 is legal @errors kNoMemory (locked memory), kSystem
  virtual Result<std::unique_ptr<Memory>> register_memory(void* start, std::uint64_t bytes) = 0;
  /// Zeroed, aligned to 64 bytes. Unless the provider has better memory: from the heap.
  /// @errors kNoMemory, and those of register_memory
  virtual Result<std::unique_ptr<AllocatedMemory>> allocate_memory(std::uint64_t bytes);
  /// Zeroed memory for the program, which peers map (Link::map()), where Limits::has_mapped_memory
  /// says so. It may be the local side of a transfer. Once destroyed it is used again for this
  /// purpose only: a peer's late store reaches no memory of the library. @errors kNoMemory
  virtual Result<std::unique_ptr<AllocatedMemory>> allocate_mapped(std::uint64_t /*bytes*/) {
    return Errc::kInvalidArgument;
  }
  /// @param receiver  outlives the endpoint
  virtual Result<std::unique_ptr<Endpoint>> open_endpoint(Receiver& receiver) = 0;
  /// An error of an operation, for people; empty: its code says all.
  virtual std::string explain(Status) const { return {}; }
  /// Now and then: reads the device's events outside of its queues, and tells people. If it is
  /// lost, its endpoints find that out when they are armed.
  virtual void look() {}
};

/// Heap memory, registered. Thread safety: immutable.
class HeapMemory final : public AllocatedMemory {
 public:
  static Result<std::unique_ptr<AllocatedMemory>> create(Fabric& fabric, std::uint64_t bytes) {
    std::unique_ptr<HeapMemory> heap(new (std::nothrow) HeapMemory(bytes));
    if (heap == nullptr || heap->lines_ == nullptr) return Errc::kNoMemory;
    auto memory = fabric.register_memory(heap->lines_.get(), bytes);
    if (!memory) return memory.error();
    heap->memory_ = std::move(memory).value();
    return std::unique_ptr<AllocatedMemory>(std::move(heap));
  }
  std::byte* start() const noexcept override { return lines_[0].bytes; }
  RemoteMemory remote() const noexcept override { return memory_->remote(); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  explicit HeapMemory(std::uint64_t bytes) noexcept
      : lines_(new (std::nothrow) Line[(bytes + sizeof(Line) - 1) / sizeof(Line)]()) {}

  std::unique_ptr<Line[]> lines_;
  std::unique_ptr<Memory> memory_;  // goes first
};

inline Result<std::unique_ptr<AllocatedMemory>> Fabric::allocate_memory(std::uint64_t bytes) {
  return HeapMemory::create(*this, bytes);
}

/// How a provider is asked for.
struct FabricOptions {
  std::string device;                  ///< as the provider names it; empty: it chooses
  std::int32_t gid_index = -1;         ///< verbs; -1: chosen
  std::int32_t service_level = -1;     ///< verbs; -1: 0
  std::uint32_t mtu_bytes = 0;         ///< verbs; 0: the port's active one
  std::uint32_t receives_max = 32768;  ///< verbs; of one endpoint, if the device has as many
  std::uint32_t channel_queues = 0;    ///< verbs; of each channel; 0: channels share
  bool is_attach_allowed = true;       ///< shm
};

/// @param[out] reason  why there is none, for people: the failed call, and the remedy
using OpenFabric = Result<std::unique_ptr<Fabric>> (*)(const FabricOptions& options,
                                                       std::string* reason);

}  // namespace larklane::net
