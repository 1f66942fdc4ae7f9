#pragma once
// Ordinary messages of an MPI program: a communicator's sends, receives and probes.
// (docs/design/protocols/ordinary_messages.md)

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/context_id.hpp"
#include "base/status.hpp"
#include "msg/match/lane_stamp.hpp"
#include "msg/match/match.hpp"
#include "msg/protocol/operation.hpp"
#include "msg/protocol/user_bytes.hpp"

namespace larklane::msg {

class ByTag;
class Connection;
class Engine;
class MessageLane;

inline constexpr int kAnySource = -1;
inline constexpr std::int64_t kAnyTag = -1;

/// A message, as its receiver sees it. Thread safety: immutable.
struct Envelope {
  int source;  ///< rank in the communicator; of an intercommunicator in the remote group
  std::uint32_t tag;
  std::uint64_t bytes;
};

/// A send or a receive in flight. It belongs to the caller from the post to release(); the engine
/// completes it in any thread's turn of a lane. No call here waits for that.
/// Thread safety: is_done() is thread-safe; outcome() and release() belong to one owner.
using Pending = Operation;

/// acquire: of the message's bytes and the outcome; pairs with the release of its completion.
inline bool is_done(const Pending& pending) noexcept {
  return pending.is_over.load(std::memory_order_acquire);
}

/// Thread safety: immutable.
struct Outcome {
  /// Not ok: kSizeMismatch: the message is longer than the receive; no byte is written, and
  /// `envelope.bytes` is the message's length. kPeerDown and others: the peer is lost.
  Status status;
  /// Of a receive: the message. Of a send: unspecified.
  Envelope envelope;
  bool is_cancelled;
};
/// @pre is_done()
inline Outcome outcome(const Pending& pending) noexcept {
  const Completion& completion = pending.completion;
  return {completion.status,
          {completion.rank, static_cast<std::uint32_t>(completion.tag), completion.bytes},
          pending.is_cancelled};
}
/// Gives it back to its lane. @pre is_done(); no other thread uses it, cancel() included
void release(Pending& pending) noexcept;
/// By a thread that waits for it: a turn of its lane, then now and then of the others. If the last
/// turn found little, it first backs off for up to 0.2 us. Also after its communicator's close().
/// @pre not released @return records and completions served
std::uint32_t progress(const Pending& waits_for) noexcept;
/// MPI_Test: as progress(), without the back-off.
std::uint32_t poll(const Pending& waits_for) noexcept;

/// The same for all operations that poll() serves alike.
inline const void* polled_for(const Pending& pending) noexcept {
  if (pending.role == Operation::Role::receive_on_all_lanes) [[unlikely]]
    return pending.communicator;
  return pending.lane;
}

/// A message that take() has removed from the matching: MPI_Message. It belongs to the caller until
/// Communicator::receive() of it. It may outlive the communicator's close().
struct Taken;

/// Info keys of the communicator: mpi_assert_*.
struct Hints {
  static constexpr std::uint32_t kByIdentity = UINT32_MAX;

  bool no_any_source = false;
  bool no_any_tag = false;
  bool allow_overtaking = false;
  /// Lanes by tag without the hints above.
  enum class LanesByTag : std::uint8_t {
    off,
    /// MPI's order, by visibility, where the engine has it (Engine::Options::lanes_by_tag).
    by_visibility,
  };
  LanesByTag lanes_by_tag = LanesByTag::off;
  /// The lane, modulo the number of lanes; equal on all members. Its creator may count: hashes of
  /// identities often meet on one lane.
  std::uint32_t lane = kByIdentity;

  /// A lane for each hash of a tag: order between tags does not matter, or can't be seen.
  bool allow_lanes_by_tag() const noexcept {
    return allow_overtaking || (no_any_source && no_any_tag);
  }
};

// Thread safety: thread-safe, but close() is the last call, and no other call runs meanwhile.
// Invariants:
// 1. A record names its communicator by a number of its link. The sender announces identity and
//    number before the first message with it, on each lane.
// 2. The object lives until close(), and until each peer's close mark has come for each number that
//    names it here.
// 3. Messages that match no receive are kept without a limit. Records always leave the ring.
// 4. A message that finds no room in the peer's ring is copied to the heap, behind those that wait.
class Communicator final {
 public:
  enum class Mode : std::uint8_t { standard, synchronous };

  /// @param to  rank in the communicator (intercommunicator: in the remote group), in range
  /// @return null: complete, and `from` may be used again. Always so for a standard message of up
  ///   to Engine::eager_bytes_max() bytes. Else `from` stays unchanged until it is done
  /// @errors kNoMemory; of a lost peer the reason
  /// @cost no lock but the lane's, which it tries
  Result<Pending*> send(int to, std::uint32_t tag, UserBytes from, Mode mode) noexcept;
  /// @param from  rank in range, or kAnySource @param tag  or kAnyTag
  /// @return may be done already
  /// @errors kNoMemory. A lost peer is an outcome
  Result<Pending*> receive(int from, std::int64_t tag, UserBytes to) noexcept;
  /// Iprobe: makes one turn of the lane, then looks for the message that a receive with the same
  /// arguments would get. False: there is none.
  bool look(int from, std::int64_t tag, Envelope* found) noexcept;
  /// Improbe: as look(), and takes the message. Null: there is none.
  Taken* take(int from, std::int64_t tag, Envelope* found) noexcept;
  /// Mrecv and Imrecv. `message` is used up, also if it fails. @errors kNoMemory
  static Result<Pending*> receive(Taken& message, UserBytes to) noexcept;

  /// True: it is done with is_cancelled, without the peer's help. False: too late, it completes as
  /// if this had not been called. A send whose record is out can be cancelled where peers map
  /// memory (Limits::has_mapped_memory). A receive that has matched it ends that, or a probe that
  /// has shown it.
  /// @param pending  not released. Not while its communicator's close() runs in another thread
  static bool cancel(Pending& pending) noexcept;
  /// For a waiting probe: the reason that nothing more comes from that rank. Ok: it is not lost.
  Status failure_of(int rank) noexcept;

  /// All its sends so far are over, and their records out.
  bool are_sends_over() noexcept;

  /// MPI_Comm_free, after its delete callbacks: the last call but cancel() of a receive that is
  /// still in flight. Drops messages without a receive, now and later. Receives and sends in flight
  /// go on. Marks the end behind the messages to each peer.
  void close() noexcept;

  /// The same for a thread without an operation in flight: of the first lane.
  std::uint32_t progress() noexcept;
  std::uint32_t poll() noexcept;

  /// Longer messages are offered, and copied once they have a receive.
  std::uint32_t eager_bytes_max() const noexcept { return eager_bytes_max_; }
  const ContextId& id() const noexcept { return id_; }
  int own_rank() const noexcept { return own_rank_; }
  /// Ranks of the processes in the engine, by rank in the communicator; intercommunicator: of the
  /// remote group.
  std::span<const int> members() const noexcept { return members_; }
  MatchCounts match_counts() noexcept;
  /// On lanes by tag: calls with a wildcard tag have merged the lanes' messages, for now. A hint.
  bool has_wide_order() const noexcept;

 private:
  friend class ByTag;
  friend class Communicators;
  friend class Connection;
  friend class Engine;

  using Stamps = LaneStamps<>;
  /// A peer over one lane. The others are written before `connection`.
  struct Route {
    std::atomic<Connection*> connection{nullptr};
    Stamps* stamps = nullptr;  ///< the peer's, on lanes by tag
    std::uint32_t number = 0;
  };
  /// One lane's part. Thread safety: as Route's.
  struct Way {
    MessageLane& lane;
    std::unique_ptr<Route[]> routes;
  };

  Communicator(Engine& engine, const ContextId& id) noexcept;
  ~Communicator();
  /// @param is_sighted  peers have said already whether it is on lanes by tag
  /// @errors kInvalidArgument: they have said otherwise
  Status prepare(std::span<const int> members, int own_rank, const Hints& hints, bool is_sighted);
  /// The communicator comes on lanes by tag. @errors none but std::bad_alloc
  void go_by_tag();
  /// Null: it is not on lanes by tag.
  ByTag* by_tag() const noexcept { return by_tag_.get(); }
  Operation* begin_receive(MessageLane& lane, const MatchKey& key, UserBytes to) noexcept;
  Result<Pending*> receive_by_tag(int from, std::int64_t tag, UserBytes to) noexcept;
  Result<Pending*> send_by_tag(int to, std::uint32_t tag, UserBytes from, Mode mode) noexcept;

  /// @param tag  kAnyTag: the first way
  std::uint32_t way_of(std::int64_t tag) const noexcept;
  Way* find_way(std::uint32_t index) noexcept {
    Way* const way = ways_[index].load(std::memory_order_acquire);  // pairs with make_way_slow()
    return way != nullptr ? way : make_way_slow(index);
  }
  Way* make_way_slow(std::uint32_t index) noexcept;
  Result<Connection*> announce_slow(Way& way, int to) noexcept;
  Result<Pending*> send_first_slow(int to, std::uint32_t tag, UserBytes from, Mode mode) noexcept;
  /// Null: memory ran out.
  MatchingEngine* matching() noexcept {
    // acquire: pairs with make_matching_slow()'s release.
    MatchingEngine* const made = matching_.load(std::memory_order_acquire);
    return made != nullptr ? made : make_matching_slow();
  }
  MatchingEngine* make_matching_slow() noexcept;
  /// A search of this thread that found no message; `arrivals` from before the search.
  struct Miss {
    std::uint64_t communicator, arrivals;
    std::uint32_t rank, tag;
    MatchPolicy policy;
    bool operator==(const Miss&) const = default;
  };
  static thread_local constinit Miss last_miss_;
  /// acquire: pairs with void_misses()'s release. A search that follows finds those messages.
  Miss next_miss(const MatchKey& key) const noexcept {
    return {number_, arrivals_.load(std::memory_order_acquire), key.rank, key.tag, key.policy};
  }
  /// After a message has become visible, or a search has found one: earlier misses are void, in all
  /// threads that learn of it. release: pairs with next_miss().
  void void_misses() noexcept { arrivals_.fetch_add(1, std::memory_order_release); }
  /// Null: memory ran out.
  MessageLane* first_lane() noexcept;
  std::uint32_t poll_for(std::int64_t tag) noexcept;

  Engine& engine_;
  std::uint32_t eager_bytes_max_;  // constant once any other thread knows it
  const ContextId id_;
  const std::uint64_t number_;  // another one of each object
  std::atomic<MatchingEngine*> matching_{nullptr};
  std::vector<int> members_;  // empty: not opened yet
  int own_rank_ = -1;
  std::uint32_t first_lane_ = 0, ways_count_ = 1;
  std::unique_ptr<std::atomic<Way*>[]> ways_;
  std::unique_ptr<ByTag> by_tag_;                      // constant once any other thread knows it
  std::unique_ptr<std::unique_ptr<Stamps>[]> stamps_;  // by rank; guarded by announcing_
  // Of Engine::wake()'s list.
  Communicator* next_woken_ = nullptr;
  std::atomic<bool> is_woken_{false};
  std::mutex making_;  // guards the making of ways and of the matching engine; below a lane's lock
  std::mutex announcing_;                   // guards the announcements; above a lane's lock
  std::atomic<bool> is_closed_{false};      // written before each lane's lock is taken once
  std::atomic<std::uint64_t> arrivals_{0};  // grows with each message that is kept
  std::atomic<std::uint32_t> uses_{1};      // the program's, and each number's that names it
};

/// A creation of a communicator that this process is inside of: from before the native call to
/// after Engine::open() of its result. Several may overlap.
/// Thread safety: single-owner.
class Creation {
 public:
  explicit Creation(Engine& engine) noexcept;
  ~Creation();
  Creation(const Creation&) = delete;
  Creation& operator=(const Creation&) = delete;

 private:
  Engine& engine_;
  const std::uint64_t number_;
};

}  // namespace larklane::msg
