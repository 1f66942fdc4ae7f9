#pragma once
// The two ends of a channel on one host. Each end joins a side of the protocol, a buffer, a peer
// and the access to its memory.

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "part/engine.hpp"
#include "part/policy/deadline.hpp"
#include "part/policy/planning.hpp"
#include "part/policy/round_watch.hpp"
#include "part/protocol/shared_copy.hpp"
#include "part/protocol/side.hpp"
#include "part/records.hpp"
#include "part/shared/slot_lag.hpp"
#include "shm/copy.hpp"
#include "shm/region.hpp"
#include "shm/segment.hpp"

namespace larklane::part {

/// The thread that moved a run.
enum class MovedBy : std::uint8_t { sender, receiver, helper };

/// See runs_moved_by_this_thread().
inline thread_local std::uint64_t runs_moved = 0;
/// Bytes that this thread has copied out of slots.
inline thread_local std::uint64_t bytes_emptied = 0;

/// Statistics of the process, except for those that follow from the channels' rounds. Every atomic
/// is relaxed: no decision depends on them. Thread safety: thread-safe.
struct Counters {
  std::atomic<std::uint64_t> sends{0}, receives{0};
  std::atomic<std::uint64_t> early_bytes{0};
  std::atomic<std::uint64_t> bytes_moved{0};  ///< between buffers
  std::atomic<std::uint64_t> moved[3]{};      ///< send partitions between buffers

  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
    counter.fetch_add(n, std::memory_order_relaxed);  // relaxed: statistics
  }
  void add_moved(MovedBy by, Run run, std::uint64_t bytes, bool is_early) noexcept {
    ++runs_moved;
    add(moved[static_cast<int>(by)], run.count);
    add(bytes_moved, bytes);
    if (is_early) add(early_bytes, bytes);
  }
};

/// Statistics that follow from the number of rounds of a channel. Thread safety: single-owner.
struct RoundTotals {
  std::uint64_t rounds = 0, bytes = 0;
  std::uint64_t slots_emptied = 0, slot_bytes = 0;  ///< by a receiver
  void add(const RoundTotals& more) noexcept {
    rounds += more.rounds;
    bytes += more.bytes;
    slots_emptied += more.slots_emptied;
    slot_bytes += more.slot_bytes;
  }
};

/// The kernel's id of the calling thread, with a system call in its first call only.
inline pid_t this_thread() noexcept {
  thread_local constinit pid_t id = 0;
  if (id == 0) id = ::gettid();
  return id;
}

/// A channel of this process, as the owner of steps that wait for the program.
class StepOwner : public std::enable_shared_from_this<StepOwner> {
 public:
  virtual ~StepOwner() = default;
  /// On a thread of the program.
  virtual void carry_out_step(const record::Move& step) = 0;
  /// On a thread of the library, which can do it where the step's pages are open.
  virtual void on_move(const record::Move& step) = 0;
  /// Has one of `threads` open this side's pages of the step.
  virtual Status open_pages(const record::Move& step, std::span<const pid_t> threads) = 0;
  /// The one that made the request.
  pid_t thread() const noexcept { return thread_; }

 private:
  const pid_t thread_ = this_thread();
};

/// Handed-over steps of one process that wait for a thread of the program. The helper can't access
/// their memory: a SIGSEGV handler of the program may open it, and the helper blocks all signals.
/// Any thread that waits or tests carries out all steps, even for other requests: its own request
/// may need them first. If none does within kPatienceNs, a signal makes one open the pages, and the
/// helper carries out the steps (ADR 0031).
/// Thread safety: thread-safe, but for serve_by().
class ProgramSteps {
 public:
  /// @param plane  its threads prompt the program. Before the first step; it ends before this
  void serve_by(control::Plane& plane) noexcept {
    plane_ = &plane;
    thread_ = this_thread();
  }
  void add(StepOwner& owner, const record::Move& step);
  void carry_out();
  bool empty() const noexcept {
    // relaxed: a hint; a waiting thread polls again.
    return count_.load(std::memory_order_relaxed) == 0;
  }

 private:
  struct Step {
    std::weak_ptr<StepOwner> owner;
    record::Move move;
  };
  static constexpr std::int64_t kPatienceNs = 20'000'000;
  std::optional<Step> take();
  void prompt_program();
  void carry_out_by_helper();

  control::Plane* plane_ = nullptr;
  pid_t thread_ = 0;  ///< that made the engine: it uses MPI
  std::mutex mutex_;
  std::vector<Step> steps_;   // this and is_prompted_: guarded by mutex_
  bool is_prompted_ = false;  ///< a thread will look at the steps
  std::atomic<std::size_t> count_{0};
};

/// The engine's state of one process. Thread safety: `down` and `thread` are thread-safe; the rest
/// is guarded by the engine's mutex.
struct PeerState {
  control::Peer* peer = nullptr;
  /// Thread id that attach copies use. relaxed: each value that it ever had works, or the copy
  /// fails; an ended thread is none of the process's threads.
  std::atomic<pid_t> thread{0};
  bool push_allowed = false;  ///< attach, from here into its memory
  bool pull_allowed = false;
  std::atomic<bool> down{false};
  ProgramSteps* steps = nullptr;  ///< the engine's, which outlives it
  std::set<std::uint32_t> segments_sent;
  std::unordered_map<std::uint32_t, std::shared_ptr<shm::Segment>> segments;  ///< its shared ones
  std::unordered_map<std::uint32_t, UniqueFd> unmapped;  ///< segments for which memory was refused
  std::uint64_t channels = 0;
  std::string provider, policy;

  /// The reason why it is down, for users.
  std::string why_down() const;
};

/// The error of one request: set once, by any thread. Thread safety: thread-safe.
class FailureSlot {
 public:
  void set(Status status, std::string text);
  /// acquire: pairs with set()'s release, so that text() is whole.
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  Status status() const noexcept;
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Status status_;
  std::string text_;
};

/// Movers of one channel in this process. A mover of shared copies reads the block once more after
/// the round is complete: the block must stay open until the mover has left. After a failure no
/// mover enters, and the channel is quiet when the last one has left. Thread safety: thread-safe.
class InUse {
 public:
  /// The caller calls leave(), whether it may move or not. False: shut, so it moves nothing.
  [[nodiscard]] bool enter() noexcept { return enter(kOne).may_move; }

  /// The same with a cargo; cargoes are added up modulo 2^32.
  struct Entry {
    bool may_move;
    std::uint32_t cargo;  ///< of all movers so far
  };
  /// @param one  one_with(cargo)
  [[nodiscard]] Entry enter(std::uint64_t one) noexcept {
    // acquire: pairs with shut()'s release.
    const std::uint64_t before = movers_.fetch_add(one, std::memory_order_acquire);
    return {(movers(before) & kShut) == 0, static_cast<std::uint32_t>((before + one) >> 32)};
  }
  static constexpr std::uint64_t one_with(std::uint32_t cargo) noexcept {
    return std::uint64_t{cargo} << 32 | kOne;
  }
  /// True: it is quiet now.
  bool leave() noexcept {
    // acq_rel: the last mover acquires the copies of all others; pairs with wait_until_free(),
    // is_quiet() and the other movers.
    return movers(movers_.fetch_sub(kOne, std::memory_order_acq_rel)) == kShut + 1;
  }
  /// From now on no mover may move. True: it is quiet.
  bool shut() noexcept {
    // acq_rel: as in leave().
    return (movers(movers_.fetch_or(kShut, std::memory_order_acq_rel)) & ~kShut) == 0;
  }
  /// Is no mover inside?
  bool is_free() const noexcept {
    // acquire: as in is_quiet().
    return (movers(movers_.load(std::memory_order_acquire)) & ~kShut) == 0;
  }
  bool is_quiet() const noexcept {
    // acquire: pairs with leave()'s release.
    return movers(movers_.load(std::memory_order_acquire)) == kShut;
  }
  /// No round is active: the movers inside are leaving, at most a piece away.
  void wait_until_free() const noexcept;

 private:
  static constexpr std::uint64_t kOne = 1;
  static constexpr std::uint32_t kShut = std::uint32_t{1} << 31;
  static constexpr std::uint32_t movers(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word);
  }
  std::atomic<std::uint64_t> movers_{0};  ///< the high half: their cargo
};

/// A mover's stay in a channel. Thread safety: single-owner.
template <class Channel>
class Moving {
 public:
  explicit Moving(Channel& channel) noexcept
      : channel_(channel), may_move_(channel.in_use_.enter()) {}
  ~Moving() {
    if (channel_.in_use_.leave()) channel_.tell_failure();
  }
  Moving(const Moving&) = delete;
  Moving& operator=(const Moving&) = delete;
  explicit operator bool() const noexcept { return may_move_; }

 private:
  Channel& channel_;
  const bool may_move_;
};

/// Moves bytes between this side's buffer and the peer's, where the kernel or a mapping permits.
/// Thread safety: thread-safe after construction.
class Wire {
 public:
  Wire(PeerState& peer, shm::Direction direction) noexcept;
  /// @param piece  on return the bytes that are left
  Status transfer(const shm::Buffer& ours, const shm::Buffer& theirs, Piece& piece,
                  MovedBy by) noexcept;
  /// The peer's buffer is mapped here, at `offset` in `region`. Once, at any time.
  void map(std::shared_ptr<shm::Segment> region, std::uint64_t offset) noexcept;
  /// relaxed: for map()'s caller, or for a thread that only attaches once more.
  bool is_mapped() const noexcept { return mapped_.load(std::memory_order_relaxed) != 0; }
  bool usable() const noexcept {
    // relaxed: a late reader of `true` only pays for one more refused call.
    return same_process_ || is_mapped() || allowed_.load(std::memory_order_relaxed);
  }
  /// Memory of this side that the program can access, but not the kernel. relaxed: a hint
  bool needs_owner() const noexcept { return needs_owner_.load(std::memory_order_relaxed); }
  void note_owner() noexcept { needs_owner_.store(true, std::memory_order_relaxed); }
  /// Is the peer's buffer in this address space? Then only this side's memory can fail a copy.
  bool is_direct() const noexcept {
    // acquire: pairs with map()'s release.
    return same_process_ || mapped_.load(std::memory_order_acquire) != 0;
  }

 private:
  Status attach(const shm::Buffer& ours, const shm::Buffer& theirs, Piece& piece,
                MovedBy by) noexcept;

  PeerState& peer_;  // the channel's, which outlives it
  shm::Direction direction_;
  bool same_process_;
  std::atomic<bool> allowed_;
  std::atomic<bool> needs_owner_{false};
  std::shared_ptr<shm::Segment> region_;
  std::atomic<std::uintptr_t> mapped_{0};
};

class SendChannel final : public SendRequest, public StepOwner {
 public:
  struct Parts {
    std::uint64_t id;
    InitArgs args;
    shm::Block block;
    BlockShape shape;
    std::vector<std::uint32_t> boundaries;  ///< of the groups, direct mode
    std::shared_ptr<PeerState> peer;
    Counters* counters;
    std::uint64_t piece_bytes;
    PlanSource plans;
  };
  explicit SendChannel(Parts parts);

  Status start() override;
  Status pready(std::int32_t first, std::int32_t count) override;
  Status look_for_receiver(bool* is_ready) override;
  Completion poll() override;
  void finish() override;
  Status error() const noexcept override { return failure_.status(); }
  std::string error_text() const override { return failure_.text(); }

  // For the engine, on the helper.
  void on_datatype(const record::Datatype& head, std::span<const std::byte> words);
  /// Does the receive buffer lie in the region that its process names? Its typemap has come before.
  bool fits(const shm::Segment& region, std::uint64_t offset) const;
  void on_map(std::shared_ptr<shm::Segment> region, std::uint64_t offset) noexcept {
    if (!wire_.is_mapped()) wire_.map(std::move(region), offset);  // a push may use the first one
  }
  void on_move(const record::Move& move) override;  ///< the receiver could not pull
  void on_fail(Status status, std::string text);
  const InUse& in_use() const noexcept { return in_use_; }
  void on_peer_closed() noexcept { peer_closed_.store(true, std::memory_order_release); }
  bool peer_closed() const noexcept { return peer_closed_.load(std::memory_order_acquire); }
  void fail(Status status, std::string text) { failure_.set(status, std::move(text)); }

  std::uint64_t id() const noexcept { return id_; }
  PeerState& peer() const noexcept { return *peer_; }
  const InitArgs& args() const noexcept { return args_; }
  const shm::Block& block() const noexcept { return block_; }
  RoundTotals totals() const noexcept;

  // For SendSide.
  void move(Run run);
  void fill(std::byte* slot, std::uint64_t offset, std::uint64_t length) const noexcept {
    if (length != 0) shm::pack(buffer(), offset, length, slot);
  }

 private:
  friend class Moving<SendChannel>;
  void mark_further(const Cell& cell, std::size_t partition, std::uint64_t old) override;
  void plan_ahead();
  Status reserve_slots(std::uint64_t round);
  void refuse_datatype();
  Status push_or_mark(std::uint32_t partition);
  bool push_past_slot(std::uint32_t partition);
  bool receiver_is_gone() const noexcept;
  void move_now(Run run);
  Status work(MovedBy by);  ///< on shared copies
  // hand_over.cpp
  Passed pass_on(Run run, std::uint32_t job, std::uint32_t piece, std::uint64_t done, MovedBy by);
  void carry_out(record::Move move, MovedBy by);
  void carry_out_step(const record::Move& step) override;
  Status open_pages(const record::Move& step, std::span<const pid_t> threads) override;
  Status leave_to_program(const record::Move& move);
  Status pack(record::Move move, const Piece& left, MovedBy by);
  Status make_staging();
  /// In this round Pready packs a partition before it marks it, and all copies read the packed
  /// bytes. The receiver may need them while no thread of the program is in a call of the library.
  bool packs_early() const noexcept {
    // acquire: pairs with start()'s release: staging_ is there.
    return packs_early_.load(std::memory_order_acquire);
  }
  void pack_early(Run run) noexcept;
  shm::Buffer packed() const noexcept;  ///< the message in staging memory
  std::optional<Piece> all_of(const record::Move& move) const;
  void finish(const record::Move& move, MovedBy by);
  void tell_failure();
  Completion failed_once_quiet();
  Status push(Piece& piece, MovedBy by) noexcept;
  Piece bytes_of(Run run) const noexcept {
    return {run.first * partition_bytes_, run.count * partition_bytes_};
  }
  bool knows_peer_type() const noexcept;  ///< strided: once its typemap has come
  void help();  ///< a waiting thread's share: deadlines, shared copies, handed-over steps
  void moved(Run run, MovedBy by);
  void give_up(Status status);
  shm::Buffer buffer() const noexcept {
    return {args_.type.get(), reinterpret_cast<std::uintptr_t>(args_.buffer)};
  }
  std::uint64_t round() const noexcept { return round_.load(std::memory_order_relaxed); }

  const std::uint64_t id_;
  const InitArgs args_;
  const shm::Block block_;
  const std::uint64_t partition_bytes_;
  const std::shared_ptr<PeerState> peer_;
  Counters& counters_;
  SendSide<RealPlatform> side_;
  SharedCopy<RealPlatform> shared_copy_;
  Wire wire_;
  std::unique_ptr<Planning> planning_;          // policies with a planner
  std::unique_ptr<Timed<RealPlatform>> timed_;  // policies with a deadline
  /// Each parity's slots are reserved by its first round.
  const std::uint64_t reserving_rounds_;
  const bool has_large_slots_;  ///< slots that are worth a push if the receiver falls behind
  SlotLag<RealPlatform> lag_;
  std::atomic<std::uint64_t> round_{
      0};  // relaxed: the caller orders its own calls; the helper learns it from records
  std::atomic<bool> peer_closed_{false};
  FailureSlot failure_;
  InUse in_use_;
  std::atomic<bool> told_{false};        // FAIL has been sent
  std::atomic<bool> peer_quiet_{false};  // it has failed, and moves nothing more
  // The receiver's typemap, if strided: gathered by the helper, then published.
  std::vector<std::uint64_t> peer_words_;
  std::optional<Typemap> peer_type_;
  std::atomic<bool> peer_type_known_{false};
  // Where the kernel copies for neither side.
  std::atomic<bool> is_staged_{false};  // relaxed: a hint; a reader of `false` asks the peer first
  std::atomic<bool> packs_early_{false};
  std::mutex staging_mutex_;
  std::shared_ptr<shm::Segment> staging_;  // written once, under staging_mutex_
};

class RecvChannel final : public RecvRequest, public StepOwner {
 public:
  RecvChannel(InitArgs args, std::shared_ptr<PeerState> peer, Counters* counters,
              std::uint64_t piece_bytes);

  Status start() override;
  Completion poll() override;
  void finish() override;
  Status error() const noexcept override { return failure_.status(); }
  std::string error_text() const override { return failure_.text(); }

  /// Its place among the unmatched receives. Under the engine's mutex.
  std::uint64_t place = 0;

  /// The sender's half, from its INIT.
  struct Match {
    std::uint64_t channel = 0;  ///< 0: the send was freed
    BlockShape shape{};
    std::shared_ptr<shm::Segment> segment;
    std::uint64_t block_offset = 0;
    std::uint64_t send_address = 0;
    std::shared_ptr<const Typemap> send_type;
    std::shared_ptr<shm::Segment> region;  ///< of a mapped send buffer
    std::uint64_t region_offset = 0;
    bool sender_closed = false;
    bool has_own_segment = false;  ///< the sender gives it back after the receiver's CLOSE
    Status error{};                ///< the reason why the send can't be used
  };
  /// Matches with a sender. True: Start came before, so the caller calls open_first_round() next.
  [[nodiscard]] bool match(Match match);
  /// Matches with a send that was freed before its first Start: the receive fails.
  void match_freed();
  void open_first_round();

  void on_move(const record::Move& move) override;  ///< the sender could not push, or has packed
  void on_staging(Result<std::shared_ptr<shm::Segment>> staging);
  void on_fail(Status status, std::string text);
  const InUse& in_use() const noexcept { return in_use_; }
  void on_peer_closed() noexcept { peer_closed_.store(true, std::memory_order_release); }
  void fail(Status status, std::string text) { failure_.set(status, std::move(text)); }
  void fail_freed();  ///< with the error of a freed send
  bool matched() const noexcept { return matched_.load(std::memory_order_acquire); }
  /// Is it matched with a usable send? acquire: pairs with match()'s release.
  bool usable() const noexcept { return usable_.load(std::memory_order_acquire) != nullptr; }
  std::uint64_t channel() const noexcept { return match_.channel; }
  bool has_own_segment() const noexcept { return match_.has_own_segment; }
  std::uint32_t send_partitions() const noexcept { return match_.shape.partitions; }
  PeerState& peer() const noexcept { return *peer_; }
  const InitArgs& args() const noexcept { return args_; }
  RoundTotals totals() const noexcept;

  // For RecvSide.
  void move(Run run) { move(run, MovedBy::receiver); }
  void empty(const std::byte* slot, std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  friend class Moving<RecvChannel>;
  bool sender_is_gone() const noexcept;
  void move(Run run, MovedBy by);
  Status work(MovedBy by);  ///< on shared copies
  // hand_over.cpp
  Passed pass_on(Run run, std::uint32_t job, std::uint32_t piece, std::uint64_t done);
  void carry_out(record::Move move, MovedBy by);
  void carry_out_step(const record::Move& step) override;
  Status open_pages(const record::Move& step, std::span<const pid_t> threads) override;
  Status pass_on_copy(record::Move move);
  void unpack(record::Move move, Piece left, MovedBy by);
  std::optional<Piece> all_of(const record::Move& move) const;
  void finish(const record::Move& move, MovedBy by);
  void tell_failure();
  Completion failed_once_quiet();
  Status look(std::int32_t partition, bool* arrived) override;
  template <class Mover>
  void open(std::uint64_t round, Mover& mover);
  void count_early(std::uint64_t emptied_before) noexcept;
  Status pull(Piece& piece, MovedBy by) noexcept;
  Piece bytes_of(Run run) const noexcept {
    return {run.first * match_.shape.partition_bytes, run.count * match_.shape.partition_bytes};
  }
  void help();  ///< a waiting thread's share: deadlines, shared copies, handed-over steps
  void moved(Run run, MovedBy by);
  void give_up(Status status);
  shm::Buffer buffer() const noexcept;
  std::uint64_t round() const noexcept { return round_.load(std::memory_order_relaxed); }

  const InitArgs args_;
  const std::shared_ptr<PeerState> peer_;
  Counters& counters_;
  const std::uint64_t piece_bytes_;
  Wire wire_;
  std::atomic<std::uint64_t> round_{
      0};  // relaxed: the caller orders its own calls; the helper learns it from records
  FailureSlot failure_;
  InUse in_use_;
  std::atomic<bool> told_{false};        // FAIL has been sent
  std::atomic<bool> peer_quiet_{false};  // it has failed, and moves nothing more
  std::atomic<bool> peer_closed_{false};
  // Written by match(), then published.
  Match match_{};
  std::unique_ptr<RecvSide<RealPlatform>> side_;
  std::optional<SharedCopy<RealPlatform>> shared_copy_;
  std::optional<DeadlineWatch<RealPlatform>> deadlines_;
  bool is_on_demand_ = false;  ///< Parrived expires words of ready partitions
  std::atomic<RecvSide<RealPlatform>*> usable_{nullptr};  ///< side_, once it is usable
  std::atomic<bool> matched_{false};
  std::mutex start_mutex_;    // orders a Start before the match and the match
  bool start_waits_ = false;  // guarded by start_mutex_
  // Where the kernel copies for neither side.
  std::atomic<bool> is_staged_{false};  // relaxed: a hint; a reader of `false` asks the peer first
  std::shared_ptr<shm::Segment> staging_;  // the helper's, once, before any step that needs it
};

/// Reports to the peer that the pair can't work. @param bytes  kSizeMismatch: size of this side's
/// buffer
void send_fail(PeerState& peer, std::uint64_t channel, bool by_sender, Status status,
               std::uint64_t bytes = 0);

/// Are `bytes` whole elements? A peer's typemap may hold any values.
inline bool makes_up(const Typemap& type, std::uint64_t bytes) noexcept {
  return type.size_bytes() != 0 && bytes % type.size_bytes() == 0;
}

/// Do all bytes of a buffer lie in `region`? Its first element is at `offset`, which is negative,
/// modulo 2^64, if that element starts with a gap before the region.
bool lies_within(const shm::Segment& region, std::uint64_t offset, const Typemap& type,
                 std::uint64_t total_bytes);

/// The reason why a channel can't move its bytes to or from a living peer, for error texts.
std::string why_given_up(Status status, std::uint64_t bytes);
/// A pair for error texts: partitions, bytes, tag, source.
std::string describe(const InitArgs& args, Kind kind);
/// The reason why the peer has failed; never ok.
Status status_of(const record::Fail& fail);
/// The text of a peer's failure report.
/// @param cause  for users; empty: its code and errno
std::string reported(const InitArgs& args, Kind kind, const record::Fail& fail,
                     const std::string& cause = {});

}  // namespace larklane::part
