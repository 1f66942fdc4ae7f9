#pragma once
// The two ends of a channel on one host. Each end joins a side of the protocol, a buffer, a peer
// and the access to its memory.

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "part/counters.hpp"
#include "part/error_text.hpp"
#include "part/lifetime.hpp"
#include "part/peer_state.hpp"
#include "part/policy/deadline.hpp"
#include "part/policy/planning.hpp"
#include "part/policy/round_watch.hpp"
#include "part/program_steps.hpp"
#include "part/protocol/shared_copy.hpp"
#include "part/protocol/side.hpp"
#include "part/records.hpp"
#include "part/request.hpp"
#include "part/shared/peer_access.hpp"
#include "part/shared/slot_lag.hpp"
#include "shm/segment.hpp"

namespace larklane::part {

/// Bytes that this thread has copied out of slots.
inline thread_local std::uint64_t bytes_emptied = 0;

class SendChannel final : public SendRequest, public ChannelLifetime, public StepOwner {
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
    if (!peer_access_.is_mapped())
      peer_access_.map(std::move(region), offset);  // a push may use the first one
  }
  void on_move(const record::Move& move) override;  ///< the receiver could not pull

  const shm::Block& block() const noexcept { return block_; }

  // For SendSide.
  void move(Run run);
  void fill(std::byte* slot, std::uint64_t offset, std::uint64_t length) const noexcept {
    if (length != 0) shm::pack(buffer(), offset, length, slot);
  }

 private:
  void mark_further(const Cell& cell, std::size_t partition, std::uint64_t old) override;
  void plan_ahead();
  Status reserve_slots(std::uint64_t round);
  void refuse_datatype();
  Status push_or_mark(std::uint32_t partition);
  bool push_past_slot(std::uint32_t partition);
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
  Status push(Piece& piece, MovedBy by) noexcept;
  Piece bytes_of(Run run) const noexcept {
    return {run.first * partition_bytes_, run.count * partition_bytes_};
  }
  bool knows_peer_type() const noexcept;  ///< strided: once its typemap has come
  void help();  ///< a waiting thread's share: deadlines, shared copies, handed-over steps
  void moved(Run run, MovedBy by);
  using ChannelLifetime::give_up;
  void give_up(Status status);
  shm::Buffer buffer() const noexcept {
    return {args_.type.get(), reinterpret_cast<std::uintptr_t>(args_.buffer)};
  }

  const shm::Block block_;
  const std::uint64_t partition_bytes_;
  Counters& counters_;
  SendSide<RealPlatform> side_;
  SharedCopy<RealPlatform> shared_copy_;
  PeerAccess peer_access_;
  std::unique_ptr<Planning> planning_;          // policies with a planner
  std::unique_ptr<Timed<RealPlatform>> timed_;  // policies with a deadline
  /// Each parity's slots are reserved by its first round.
  const std::uint64_t reserving_rounds_;
  const bool has_large_slots_;  ///< slots that are worth a push if the receiver falls behind
  SlotLag<RealPlatform> lag_;
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

class RecvChannel final : public RecvRequest, public ChannelLifetime, public StepOwner {
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
  bool matched() const noexcept { return gate_.is_open(); }
  /// Is it matched with a usable send? acquire: pairs with match()'s release.
  bool usable() const noexcept { return usable_.load(std::memory_order_acquire) != nullptr; }
  bool has_own_segment() const noexcept { return match_.has_own_segment; }
  std::uint32_t send_partitions() const noexcept { return match_.shape.partitions; }
  RoundTotals totals() const noexcept;

  // For RecvSide.
  void move(Run run) { move(run, MovedBy::receiver); }
  void empty(const std::byte* slot, std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
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
  using ChannelLifetime::give_up;
  void give_up(Status status);
  shm::Buffer buffer() const noexcept;

  Counters& counters_;
  const std::uint64_t piece_bytes_;
  PeerAccess peer_access_;
  // Written by match(), then published.
  Match match_{};
  std::unique_ptr<RecvSide<RealPlatform>> side_;
  std::optional<SharedCopy<RealPlatform>> shared_copy_;
  std::optional<DeadlineWatch<RealPlatform>> deadlines_;
  bool is_on_demand_ = false;  ///< Parrived expires words of ready partitions
  std::atomic<RecvSide<RealPlatform>*> usable_{nullptr};  ///< side_, once it is usable
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
}  // namespace larklane::part
