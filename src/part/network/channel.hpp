#pragma once
// The two halves of a channel over a network: push or pull. Model: tests/protocol/push_or_pull.pml.
//
// The sender decides alone. A run of cells that is complete is pushed (write with immediate) if the
// receiver's credit for the round is here; otherwise a ready notice is left in the receiver's
// memory, which rings it, and from then on the run is the receiver's to pull. Nothing rests on the
// network's order: every word says of which channel and round it is.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/immediate.hpp"
#include "net/provider.hpp"
#include "part/network/demand.hpp"
#include "part/network/links.hpp"
#include "part/network/records.hpp"
#include "part/network/words.hpp"
#include "part/policy/deadline.hpp"
#include "part/policy/planning.hpp"
#include "part/protocol/arrival.hpp"
#include "part/protocol/side.hpp"
#include "part/shared/channel.hpp"
#include "vci/vci.hpp"

namespace larklane::part {

/// A set of cells. Thread safety: thread-safe.
class NetCellSet {
 public:
  // seq_cst: store-then-look; each caller says against what.
  void add(std::uint32_t cell) noexcept {
    bits_[cell / 64].fetch_or(bit(cell), std::memory_order_seq_cst);
  }
  /// True: it was there, and this call has removed it.
  bool take(std::uint32_t cell) noexcept {
    return (bits_[cell / 64].fetch_and(~bit(cell), std::memory_order_seq_cst) & bit(cell)) != 0;
  }
  template <class See>
  void for_each(See&& see) const {
    for (std::uint32_t w = 0; w < bits_.size(); ++w)
      for (std::uint64_t left = bits_[w].load(std::memory_order_seq_cst); left != 0;
           left &= left - 1)
        see(w * 64 + static_cast<std::uint32_t>(__builtin_ctzll(left)));
  }

 private:
  static constexpr std::uint64_t bit(std::uint32_t cell) noexcept {
    return std::uint64_t{1} << (cell % 64);
  }
  std::array<std::atomic<std::uint64_t>, net::kCellsMax / 64> bits_{};
};

/// A control block that no other process sees.
class PrivateBlock {
 public:
  /// @errors kNoMemory
  static Result<PrivateBlock> make(const BlockShape& shape) {
    PrivateBlock block;
    block.bytes_.reset(new (std::align_val_t{kLineBytes}, std::nothrow)
                           std::byte[BlockOffsets::of(shape).end]);
    if (!block.bytes_) return Errc::kNoMemory;
    block.view_ = BlockView<RealPlatform>(block.bytes_.get(), shape);
    block.view_.construct(shape, 0);
    return block;
  }
  const BlockView<RealPlatform>& view() const noexcept { return view_; }

 private:
  struct Delete {
    void operator()(std::byte* bytes) const noexcept {
      ::operator delete[](bytes, std::align_val_t{kLineBytes});
    }
  };
  std::unique_ptr<std::byte[], Delete> bytes_;
  BlockView<RealPlatform> view_;
};

/// The bytes of a buffer as the network sees them: the buffer itself, or, of a strided one, a
/// packed copy. Thread safety: immutable but for the bytes.
class NetBuffer {
 public:
  static Result<NetBuffer> make(net::Fabric& fabric, const InitArgs& args);
  std::byte* at(std::uint64_t offset) const noexcept { return start_ + offset; }
  const net::Memory* memory() const noexcept { return memory_.get(); }
  bool is_packed() const noexcept { return packed_ != nullptr; }
  /// No peer reaches it any more. @pre nothing is posted with memory()
  void unregister() noexcept { memory_.reset(); }
  void pack(std::uint64_t offset, std::uint64_t length) const noexcept;
  void unpack(std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  shm::Buffer user_{};
  std::byte* start_ = nullptr;
  std::unique_ptr<std::byte[]> packed_;  ///< null: contiguous
  std::unique_ptr<net::Memory> memory_;
};

/// What both halves have of their peer.
struct NetPath {
  NetLink* link;  ///< at first; a receive's may change when it is matched
  vci::VciPool* lanes;
  std::shared_ptr<PeerState> peer;
  bool is_progress_manual;  ///< what the peer has stored is seen only after a poll
};

/// Common to both halves: failing together, leaving, and the peer's end.
/// Thread safety: thread-safe.
class NetHalf {
 public:
  NetHalf(NetPath path, Kind kind, NetBuffer buffer)
      : path_(std::move(path)), link_(path_.link), kind_(kind), buffer_(std::move(buffer)) {}
  void on_peer_fail(Status status, std::string text);  ///< with the network's mutex held
  /// The peer has freed its half after `rounds` rounds, whose last bytes may still be on their way.
  void on_peer_closed(std::uint64_t rounds) noexcept {
    // release: pairs with peer_closed()'s and lacks_peer()'s acquire.
    peer_rounds_.store(rounds, std::memory_order_release);
  }
  bool peer_closed() const noexcept {
    return peer_rounds_.load(std::memory_order_acquire) != kNotClosed;
  }
  /// From now on nothing new is posted. Any thread.
  void give_up(Status status, std::string text);
  /// acquire: pairs with on_peer_down's release.
  bool peer_is_down() const noexcept { return path_.peer->down.load(std::memory_order_acquire); }
  /// The peer can't use what its half has been told of any more.
  bool is_over() const { return peer_closed() || path_.peer->peer->has_ended(); }
  bool is_idle() const noexcept { return in_use_.is_free(); }
  /// It is freed, and has not failed: from now on nothing is posted, and of that nobody is told.
  /// @return nothing is under way
  bool end_posts() noexcept {
    told_.store(true, std::memory_order_relaxed);  // relaxed: as in tell_failure()
    (void)in_use_.shut();
    return in_use_.is_quiet();
  }
  /// A round is over, or the half is freed: as long as something is under way the lane is served
  /// on.
  void end_watch() noexcept {
    // relaxed, twice: the lane outlives all of this, and its word orders what it has to.
    if (watched_.load(std::memory_order_relaxed) == nullptr || !in_use_.is_free()) return;
    if (NetLane* const lane = watched_.exchange(nullptr, std::memory_order_relaxed))
      lane->turn_off();
  }
  bool has_failed() const noexcept { return failure_.failed(); }
  /// Its process, the link or the device is lost.
  bool is_cut_off() const noexcept;
  /// is_cut_off(): nothing is posted any more, and the buffer's key is given back as soon as
  /// neither side can be using it. Rounds fail where they are waited for. With the network's mutex
  /// held.
  void cut_off();
  const NetPath& path() const noexcept { return path_; }
  /// acquire: pairs with take_link()'s release.
  NetLink& link() const noexcept { return *link_.load(std::memory_order_acquire); }
  /// From now on all goes this way, which nothing has gone yet. Before anybody is told of the
  /// match; with the network's mutex held.
  void take_link(NetLink& link) {
    place_ = path_.lanes->take_place(link.lane_index);
    link_.store(&link, std::memory_order_release);  // pairs with link()'s acquire
  }
  /// It is freed, or has failed. @return nothing of it is under way; of what is the helper hears,
  /// whoever else polls. With the network's mutex held.
  bool settle();
  bool is_closed = false;  ///< the peer has been told that it is freed; guarded by the network
  std::uint64_t channel() const noexcept { return channel_.load(std::memory_order_relaxed); }

 protected:
  /// True: the caller may post one Work, whose completion leaves.
  [[nodiscard]] bool enter() noexcept {
    if (in_use_.enter()) return true;
    leave();
    return false;
  }
  void leave() noexcept {
    if (in_use_.leave()) on_quiet();
  }
  /// Nothing more will come of the peer for `round`, but what is on its way already.
  bool lacks_peer(std::uint64_t round) const noexcept;
  /// The same whatever the round.
  bool peer_is_gone() const noexcept;
  vci::Vci& vci() const noexcept { return link().vci; }
  /// One turn of whoever waits.
  void progress() const noexcept {
    NetLink& link = this->link();
    if (path_.lanes->progress(link.vci) != 0)
      ++runs_moved;
    else
      link.lane.on_empty_turn();
  }
  /// In Start: from now on somebody serves the lane although the program does not call.
  void begin_watch() noexcept {
    NetLane& lane = link().lane;
    // relaxed: as in end_watch().
    if (watched_.exchange(&lane, std::memory_order_relaxed) == nullptr) lane.turn_on();
  }
  /// Why a round that lacks its peer can't end.
  void give_up_on_peer(const InitArgs& args);
  Completion failed_once_quiet();
  void tell_failure();
  /// Nothing of it is under way, and nothing will be.
  void on_quiet();
  /// The peer's operations have ended, or can't come here.
  bool is_out_of_reach() const;
  void unregister_lost();
  /// acquire, release: the buffer's key is in a record for the peer.
  bool is_key_told() const noexcept { return is_key_told_.load(std::memory_order_acquire); }
  void tell_key() noexcept { is_key_told_.store(true, std::memory_order_release); }
  void drop_buffer();

  const NetPath path_;
  std::atomic<NetLink*> link_;
  vci::VciPool::Place place_;  // guarded by the network's mutex
  const Kind kind_;
  /// What is in use (in_use_) may use it without the mutex.
  std::optional<NetBuffer> buffer_;
  std::mutex buffer_mutex_;                 // its end by free, and of its registration by a loss
  bool is_awaited_ = false;                 // settle() has asked for that; guarded by the network
  std::atomic<NetLane*> watched_{nullptr};  // whose helper's watch has been turned on
  std::atomic<std::uint64_t> channel_{0};   // relaxed: written before the peer is told of it
  FailureSlot failure_;
  InUse in_use_;
  std::atomic<bool> told_{false}, peer_quiet_{false};
  std::atomic<bool> is_key_told_{false};
  static constexpr std::uint64_t kNotClosed = ~std::uint64_t{0};
  std::atomic<std::uint64_t> peer_rounds_{kNotClosed};
};

/// Thread safety: as SendRequest; on_accept belongs to the helper.
class NetSend final : public SendRequest, public NetHalf {
 public:
  struct Parts {
    std::uint64_t id;
    InitArgs args;
    BlockShape shape;
    PrivateBlock block;
    std::vector<std::uint32_t> boundaries;
    NetBuffer buffer;
    NetWords words;  ///< credit, demand and FINs
    NetPath path;
    Counters* counters;
    GroupRules rules{};
    std::optional<std::uint16_t> demand_slot{};
    PlanSource plans{};
  };
  explicit NetSend(Parts parts);

  Status start() override;
  Status pready(std::int32_t first, std::int32_t count) override;
  Completion poll() override;
  void finish() override;
  Status error() const noexcept override { return failure_.status(); }
  std::string error_text() const override { return failure_.text(); }

  void on_accept(const record::NetAccept& accept);
  /// An immediate with its slot. On whoever polls.
  void on_demand();
  std::optional<std::uint16_t> demand_slot() const noexcept { return demand_slot_; }
  /// The receiver has closed, and has sent so many. relaxed, twice: guarded by the network's mutex.
  void await_demands(std::uint32_t count) noexcept { demands_awaited_ = count; }
  bool has_heard_all() const noexcept {
    return demands_heard_.load(std::memory_order_relaxed) == demands_awaited_;
  }
  record::NetInit init_record() const;
  const InitArgs& args() const noexcept { return args_; }
  const NetWords& words() const noexcept { return net_words_; }
  /// Partitions, of all rounds. relaxed: whether it grows.
  std::uint64_t moved() const noexcept {
    return block_.view().header().moved_count.load(std::memory_order_relaxed);
  }
  RoundTotals totals() const noexcept;
  void forget_buffer() { drop_buffer(); }

 private:
  struct CellWork : vci::Work {
    NetSend* channel = nullptr;
    Run cells{};
    LeafGroup leaves{};                ///< its group, once it is a ready Work
    std::uint64_t entry = 0;           ///< InUse's, with its cells
    std::uint32_t posted_by_then = 0;  ///< in_use_'s cargo, with this
  };
  void mark_further(const Cell& cell, std::size_t partition, std::uint64_t old) override;
  void mark_further_slow(const Cell& cell, std::uint64_t old);
  void plan_ahead();
  std::optional<std::vector<std::uint32_t>> wanted_groups();
  void open(std::uint64_t round);
  void answer_demand();
  void send_heard();
  void move(Run run);
  bool completes_cell(std::uint32_t cell, Run run) noexcept;
  void send(Run cells);
  std::uint32_t group_partitions(std::uint32_t first) const noexcept;
  bool is_group(Run run) const noexcept;
  bool has_credit() const noexcept { return net_words_.read(0) == credit_; }
  bool is_made_again(Run run) const noexcept;
  void remember(Run run, CellWork* work) noexcept;
  void push(CellWork& work, Run run);
  void leave_notice(CellWork& work);
  void look_for_fins();
  void lost(Status status);
  bool complete() const;
  static void pushed(net::Operation& operation, Status status);
  static void pushed_in_watched_round(net::Operation& operation, Status status);
  static void heard_sent(net::Operation& operation, Status status);
  static void noticed(net::Operation& operation, Status status);
  std::uint64_t round() const noexcept { return round_.load(std::memory_order_relaxed); }

  const InitArgs args_;
  const std::uint64_t partition_bytes_;
  const NetWords net_words_;
  Counters& counters_;
  const net::Cells cells_;
  PrivateBlock block_;
  SendSide<RealPlatform> side_;
  std::unique_ptr<CellWork[]> works_;  // by first cell
  vci::Vci& lane_;                     // vci(), which stays
  // Their first partitions, ascending: of the round, and, if they change, of the next one.
  std::vector<std::uint32_t> groups_, next_groups_;
  bool do_groups_change_ = false;
  AskingHabit asking_;
  bool holds_nothing_ = false;  // in rounds after this one
  /// From this round on nothing is held, up to that one; 0: something is, now or soon.
  std::atomic<std::uint64_t> nothing_held_until_{0};
  const GroupRules rules_;
  const std::optional<std::uint16_t> demand_slot_;
  std::unique_ptr<Planning> planning_;          // policies with a planner
  std::unique_ptr<Timed<RealPlatform>> timed_;  // policies with a deadline
  HeardWork heard_;
  /// The last round of which a demand has been heard, been answered. seq_cst: open(), on_accept()
  /// and on_demand() say against what.
  std::atomic<std::uint64_t> demanded_{0}, answered_{0};
  std::atomic<std::uint32_t> demands_heard_{0};
  std::uint32_t demands_awaited_ = 0;
  /// Partitions of a cell that have been given to move() while it lacks others: only of cells that
  /// are larger than a group can be, or of which a part may come because a word has expired.
  std::unique_ptr<std::atomic<std::uint32_t>[]> parts_;
  /// What stands in the first word when the round is open; what has to stand there for a ready
  /// Work.
  std::uint64_t credit_ = 0, fast_credit_ = 0;
  static constexpr std::uint64_t kNoCredit = ~std::uint64_t{0};
  /// By partition: the Work that pushes its whole group, complete but for the post; null: there is
  /// none. Written when the group is complete, read in later rounds.
  std::unique_ptr<CellWork*[]> ready_works_;
  std::uint32_t sent_last_ = 0;          ///< in_use_'s cargo when all cells of the round are posted
  std::uint32_t last_of_several_ = 0;    ///< sent_last_, if the round has several groups
  NetCellSet awaited_;                   ///< cells whose notice is out, until their FIN
  std::atomic<std::uint64_t> round_{0};  // relaxed: the caller orders its own calls
  std::mutex start_mutex_;               // a Start against the acceptance
  bool start_waits_ = false;             // guarded by start_mutex_
  // Written by on_accept(), then published.
  record::NetAccept accept_{};
  std::atomic<bool> accepted_{false};
};

/// Thread safety: as RecvRequest; match() belongs to who holds the network's mutex.
class NetRecv final : public RecvRequest, public NetHalf {
 public:
  NetRecv(InitArgs args, NetBuffer buffer, NetPath path, Counters* counters);

  Status start() override;
  Completion poll() override;
  void finish() override;
  Status error() const noexcept override { return failure_.status(); }
  std::string error_text() const override { return failure_.text(); }

  /// Among the receives without a send. Under the network's mutex.
  std::uint64_t place = 0;

  /// The sender's half, from its INIT.
  struct Match {
    record::NetInit init{};
    NetWords notices;
    std::uint16_t slot = 0;
  };
  /// @pre take_link(), of the one that the sender has chosen
  /// @return what the sender is to be told once that is ready
  /// @errors kNoMemory: nothing has changed
  Result<record::NetAccept> match(const Match& match);
  /// The sender has been told: Starts give credit from now on.
  void accept();
  bool matched() const noexcept { return matched_.load(std::memory_order_acquire); }
  void fail_unmatched(std::uint64_t channel, Status status, std::string text);

  // An immediate with this channel's slot. On whoever polls, with the lane's lock held.
  /// @return false: no push of a run that could come now; nothing has happened
  [[nodiscard]] bool on_push(std::uint16_t token);
  /// Any other.
  void on_other(std::uint16_t token);

  const InitArgs& args() const noexcept { return args_; }
  const Match& its_match() const noexcept { return *match_; }
  bool usable() const noexcept { return usable_.load(std::memory_order_acquire); }
  /// As NetSend's.
  std::uint64_t moved() const noexcept {
    return usable() ? block_->view().header().moved_count.load(std::memory_order_relaxed) : 0;
  }
  /// relaxed: nothing of it is under way.
  std::uint32_t demand_count() const noexcept {
    return demand_ ? demand_->count.load(std::memory_order_relaxed) : 0;
  }
  RoundTotals totals() const noexcept;
  /// What arrives has to be put where the program wants it.
  bool unpacks() const noexcept { return unpacks_; }
  void forget_buffer() {
    // A sender that repeats itself may have somebody unpack into it right now.
    if (buffer_ && buffer_->is_packed() && usable()) vci().exclusively([] {});
    drop_buffer();
  }

 private:
  struct CellWork : vci::Work {
    NetRecv* channel = nullptr;
    Run cells{};
    std::atomic<bool> is_busy{false};
  };
  struct FinWork : vci::Work {
    NetRecv* channel = nullptr;
    std::uint64_t again = 0;  ///< to be sent after the one that is under way; 0: nothing
    bool is_busy = false;
  };
  Status look(std::int32_t partition, bool* arrived) override;
  void open(std::uint64_t round);
  void give_credit(std::uint64_t round);
  void demand();
  bool may_demand(std::uint64_t round) const;
  void claim(std::uint32_t cell);
  void pull(Run cells);
  void on_notice(std::uint32_t cell);
  void push_slow(Run cells);
  void pulled_in(Run cells);
  void send_fin(std::uint32_t cell, std::uint64_t word);
  void post_fin(FinWork& work, std::uint32_t cell, std::uint64_t word);
  static void pulled(net::Operation& operation, Status status);
  static void fin_sent(net::Operation& operation, Status status);
  static void credit_sent(net::Operation& operation, Status status);
  static void demand_sent(net::Operation& operation, Status status);
  static constexpr const char* kWrite = "write into";
  void lost(Status status, const char* could_not);
  /// The peer has sent what makes no sense.
  void break_off();
  bool complete() const;
  bool has_moved_all() const;  ///< of the round. @pre usable()
  std::uint64_t round() const noexcept { return round_.load(std::memory_order_relaxed); }

  const InitArgs args_;
  Counters& counters_;
  std::atomic<std::uint64_t> round_{0};  // relaxed: the caller orders its own calls
  /// The round whose bytes may be written; 0: none. seq_cst: see open() and on_notice().
  std::atomic<std::uint64_t> open_round_{0};
  NetCellSet noticed_;  ///< cells of which a run begins that is ours to pull
  const bool unpacks_;
  // Written by match(), then published.
  std::optional<Match> match_;
  std::optional<net::Cells> cells_;
  std::optional<PrivateBlock> block_;
  std::optional<Arrival<RealPlatform>> arrival_;
  // For on_push().
  std::uint32_t cell_count_ = 0;  ///< cells_'s
  bool is_plain_ = false;  ///< each partition has a cell of its own, and its bytes arrive in place
  /// All cells, if nobody looks at marks before he has looked at the count; 0: somebody does.
  std::uint32_t unmarked_count_ = 0;
  std::atomic<std::uint8_t>* arrived_ = nullptr;       ///< the block's marks
  std::atomic<std::uint64_t>* moved_count_ = nullptr;  ///< the block's
  std::unique_ptr<CellWork[]> reads_;                  // by first cell
  std::unique_ptr<FinWork[]> fins_;                    // by first cell; guarded by the lane
  std::unique_ptr<DemandWork> demand_;                 // null: the sender takes none
  struct CreditWork : vci::Work {
    NetRecv* channel = nullptr;
    std::atomic<bool> is_busy{false};
  };
  CreditWork credits_[2];  // by round parity
  std::atomic<bool> matched_{false}, usable_{false};
  std::mutex start_mutex_;    // a Start against the acceptance
  bool is_accepted_ = false;  // guarded by start_mutex_
  bool start_waits_ = false;  // guarded by start_mutex_
};

// Inline: with the lane's step, all that a push takes. It need not enter: who frees the channel
// takes its slot away with the lane's lock held, and of one that has failed only marks are written.
[[gnu::always_inline]] inline bool NetRecv::on_push(std::uint16_t token) {
  const std::uint32_t first = net::first_of(token), last = net::last_of(token);
  // relaxed: an immediate of a round comes after the credit that Start gave, once it was matched.
  const std::uint64_t round = open_round_.load(std::memory_order_relaxed);
  if (last >= cell_count_ || round == 0) [[unlikely]]
    return false;
  const Run cells{first, last - first + 1};
  if (!is_plain_) [[unlikely]]
    push_slow(cells);
  else if (cells.count == unmarked_count_ && !is_marked_always(round))
    moved_count_->fetch_add(cells.count, std::memory_order_acq_rel);  // as publish_moved()'s
  else
    publish_moved(arrived_, *moved_count_, round, cells);
  return true;
}

}  // namespace larklane::part
