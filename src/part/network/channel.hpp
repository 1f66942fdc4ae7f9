#pragma once
// The two halves of a channel over a network: push or pull. Model: tests/protocol/push_or_pull.pml.
//
// The sender decides alone. It pushes a complete run of cells (write with immediate) if it has the
// receiver's credit for the round. Otherwise it writes a ready notice into the receiver's memory,
// with an immediate that rings. From then on the receiver owns the run and pulls it. No step
// depends on the network's order: every word carries its channel and round.

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
#include "part/counters.hpp"
#include "part/error_text.hpp"
#include "part/lifetime.hpp"
#include "part/network/demand.hpp"
#include "part/network/links.hpp"
#include "part/network/records.hpp"
#include "part/network/words.hpp"
#include "part/peer_state.hpp"
#include "part/policy/deadline.hpp"
#include "part/policy/planning.hpp"
#include "part/protocol/arrival.hpp"
#include "part/protocol/side.hpp"
#include "part/request.hpp"
#include "shm/copy.hpp"
#include "vci/vci.hpp"

namespace larklane::part {

/// A set of cells. Thread safety: thread-safe.
class NetCellSet {
 public:
  // seq_cst: store-then-look; each caller names the other side.
  void add(std::uint32_t cell) noexcept {
    bits_[cell / 64].fetch_or(bit(cell), std::memory_order_seq_cst);
  }
  /// True: the cell was in the set, and this call has removed it.
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

/// A control block in private memory.
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

/// A buffer's bytes for the network: the buffer itself, or a packed copy if it is strided. Thread
/// safety: immutable except the bytes.
class NetBuffer {
 public:
  static Result<NetBuffer> make(net::Fabric& fabric, const InitArgs& args);
  std::byte* at(std::uint64_t offset) const noexcept { return start_ + offset; }
  const net::Memory* memory() const noexcept { return memory_.get(); }
  bool is_packed() const noexcept { return packed_ != nullptr; }
  /// Ends the peer's access. @pre nothing is posted with memory()
  void unregister() noexcept { memory_.reset(); }
  void pack(std::uint64_t offset, std::uint64_t length) const noexcept;
  void unpack(std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  shm::Buffer user_{};
  std::byte* start_ = nullptr;
  std::unique_ptr<std::byte[]> packed_;  ///< null: contiguous
  std::unique_ptr<net::Memory> memory_;
};

/// The way to the peer, as both halves begin with it.
struct NetPath {
  NetLink* link;  ///< the first link; a receive's may change at its match
  vci::VciPool* lanes;
  bool is_progress_manual;  ///< the peer's stores are visible only after a poll
};

/// The part that both halves share: link, lane and buffer.
/// Thread safety: thread-safe.
class NetHalf : public ChannelLifetime {
 public:
  NetHalf(NetPath path, InitArgs args, Kind kind, NetBuffer buffer)
      : ChannelLifetime(std::move(args), kind, path.link->peer,
                        static_cast<std::uint16_t>(record::NetType::fail)),
        path_(path),
        link_(path_.link),
        buffer_(std::move(buffer)) {}
  void on_peer_fail(Status status, std::string text);  ///< with the network's mutex held
  /// The peer no longer uses this half's memory, keys and slots.
  bool is_over() const { return peer_closed() || peer_->peer->has_ended(); }
  /// The half is freed, and has not failed: from now on it posts nothing, and sends no FAIL.
  /// @return nothing is in flight
  bool end_posts() {
    keep_silent();
    shut();
    return in_use_.is_quiet();
  }
  /// The round is over, or the half is freed. The helper still serves the lane while operations are
  /// in flight.
  void end_watch() noexcept {
    // relaxed, twice: the lane outlives this half, and the lane's own word orders turn_on() and
    // turn_off().
    if (watched_.load(std::memory_order_relaxed) == nullptr || !in_use_.is_free()) return;
    if (NetLane* const lane = watched_.exchange(nullptr, std::memory_order_relaxed))
      lane->turn_off();
  }
  /// The peer's process, the link or the device is lost.
  bool is_cut_off() const noexcept;
  /// @pre is_cut_off(). From now on the half posts nothing. It gives the buffer's key back as soon
  /// as neither side can use it. Rounds fail in the calls that wait for them. With the network's
  /// mutex held.
  void cut_off();
  /// acquire: pairs with take_link()'s release.
  NetLink& link() const noexcept { return *link_.load(std::memory_order_acquire); }
  /// From now on the half posts over `link`. @pre it has posted nothing, and no peer knows of the
  /// match. With the network's mutex held.
  void take_link(NetLink& link) {
    place_ = path_.lanes->take_place(link.lane_index);
    link_.store(&link, std::memory_order_release);  // pairs with link()'s acquire
  }
  /// The half is freed, or has failed. @return nothing of it is in flight. If operations are, their
  /// completions wake the helper, even if other threads poll. With the network's mutex held.
  bool settle();
  bool is_closed = false;  ///< CLOSE has been sent; guarded by the network

 protected:
  ~NetHalf() = default;
  /// True: the caller may post one Work, and its completion calls leave().
  [[nodiscard]] bool enter() noexcept {
    if (in_use_.enter()) return true;
    leave();
    return false;
  }
  /// Does the peer send nothing more for `round`, except operations in flight?
  bool lacks_peer(std::uint64_t round) const noexcept;
  vci::Vci& vci() const noexcept { return link().vci; }
  /// One turn of a waiting thread.
  void progress() const noexcept {
    NetLink& link = this->link();
    if (path_.lanes->progress(link.vci) != 0)
      ++runs_moved;
    else
      link.lane.on_empty_turn();
  }
  /// In Start: from now on the helper serves the lane while the program makes no call.
  void begin_watch() noexcept {
    NetLane& lane = link().lane;
    // relaxed: as in end_watch().
    if (watched_.exchange(&lane, std::memory_order_relaxed) == nullptr) lane.turn_on();
  }
  /// Fails the half with the reason why a round can't complete without its peer.
  void give_up_on_peer();
  Completion failed_once_quiet();
  void on_quiet() override;
  /// Have the peer's operations ended, or can none arrive any more?
  bool is_out_of_reach() const;
  void unregister_lost();
  /// acquire, release: a record for the peer carries the buffer's key.
  bool is_key_told() const noexcept { return is_key_told_.load(std::memory_order_acquire); }
  void tell_key() noexcept { is_key_told_.store(true, std::memory_order_release); }
  void drop_buffer();

  const NetPath path_;
  std::atomic<NetLink*> link_;
  vci::VciPool::Place place_;  // guarded by the network's mutex
  /// Each holder of a place in in_use_ may use it without the mutex.
  std::optional<NetBuffer> buffer_;
  std::mutex buffer_mutex_;                 // guards its end by free, and its key's by a loss
  bool is_awaited_ = false;                 // settle() wants all; guarded by the network
  std::atomic<NetLane*> watched_{nullptr};  // the lane that begin_watch() has turned on
  std::atomic<bool> is_key_told_{false};
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
  Status look_for_receiver(bool* is_ready) override;
  Completion poll() override;
  void finish() override;
  Status error() const noexcept override { return failure_.status(); }
  std::string error_text() const override { return failure_.text(); }

  void on_accept(const record::NetAccept& accept);
  /// A demand with its slot has arrived. Runs on the polling thread.
  void on_demand();
  std::optional<std::uint16_t> demand_slot() const noexcept { return demand_slot_; }
  /// The receiver has closed, after `count` demands. relaxed, twice: guarded by the network's
  /// mutex.
  void await_demands(std::uint32_t count) noexcept { demands_awaited_ = count; }
  bool has_heard_all() const noexcept {
    return demands_heard_.load(std::memory_order_relaxed) == demands_awaited_;
  }
  record::NetInit init_record() const;
  const NetWords& words() const noexcept { return net_words_; }
  /// Partitions of all rounds. relaxed: callers only test whether it grows.
  std::uint64_t moved() const noexcept {
    return block_.view().header().moved_count.load(std::memory_order_relaxed);
  }
  void forget_buffer() { drop_buffer(); }

 private:
  struct CellWork : vci::Work {
    NetSend* channel = nullptr;
    Run cells{};
    LeafGroup leaves{};                ///< of its group, once it is a ready Work
    std::uint64_t entry = 0;           ///< argument of InUse::enter(), with its cells as cargo
    std::uint32_t posted_by_then = 0;  ///< in_use_'s cargo, including this Work's
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
  bool may_push_all() const noexcept;
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

  const std::uint64_t partition_bytes_;
  const NetWords net_words_;
  Counters& counters_;
  const net::Cells cells_;
  PrivateBlock block_;
  SendSide<RealPlatform> side_;
  std::unique_ptr<CellWork[]> works_;  // by first cell
  vci::Vci& lane_;                     // vci(), which never changes
  // First partitions of the groups, ascending: of the round, and, if they change, of the next one.
  std::vector<std::uint32_t> groups_, next_groups_;
  bool do_groups_change_ = false;
  AskingHabit asking_;
  bool holds_nothing_ = false;  // in the rounds after this one
  /// No group holds a partition back from this round up to the stored one. 0: groups do, now or
  /// soon.
  std::atomic<std::uint64_t> nothing_held_until_{0};
  const GroupRules rules_;
  const std::optional<std::uint16_t> demand_slot_;
  std::unique_ptr<Planning> planning_;          // policies with a planner
  std::unique_ptr<Timed<RealPlatform>> timed_;  // policies with a deadline
  HeardWork heard_;
  /// The last round that a demand has named, and the last one answered. seq_cst: open(),
  /// on_accept() and on_demand() name their partners.
  std::atomic<std::uint64_t> demanded_{0}, answered_{0};
  std::atomic<std::uint32_t> demands_heard_{0};
  std::uint32_t demands_awaited_ = 0;
  /// Partitions of an incomplete cell that move() has taken. Only where cells may be larger than a
  /// group, or an expired word may release parts of a cell.
  std::unique_ptr<std::atomic<std::uint32_t>[]> parts_;
  /// Value of the first word when the round is open; value that a ready Work requires there.
  std::uint64_t credit_ = 0, fast_credit_ = 0;
  static constexpr std::uint64_t kNoCredit = ~std::uint64_t{0};
  /// By partition: the Work that pushes its whole group, complete except for the post. Null: none.
  /// Written when the group is complete, read in later rounds.
  std::unique_ptr<CellWork*[]> ready_works_;
  std::uint32_t sent_last_ = 0;        ///< in_use_'s cargo when all cells of the round are posted
  std::uint32_t last_of_several_ = 0;  ///< sent_last_ if there are several groups, else + 1
  NetCellSet awaited_;                 ///< first cells of runs with a notice, until their FIN
  record::NetAccept accept_{};         ///< written by on_accept(), then published by gate_
};

/// Thread safety: as RecvRequest; match() belongs to the holder of the network's mutex.
class NetRecv final : public RecvRequest, public NetHalf {
 public:
  NetRecv(InitArgs args, NetBuffer buffer, NetPath path, Counters* counters);

  Status start() override;
  Completion poll() override;
  void finish() override;
  Status error() const noexcept override { return failure_.status(); }
  std::string error_text() const override { return failure_.text(); }

  /// Its place among the unmatched receives. Under the network's mutex.
  std::uint64_t place = 0;

  /// The sender's half, from its INIT.
  struct Match {
    record::NetInit init{};
    NetWords notices;
    std::uint16_t slot = 0;
  };
  /// @pre take_link() with the link that the sender has chosen
  /// @return the ACCEPT to send once that link is ready
  /// @errors kNoMemory: nothing has changed
  Result<record::NetAccept> match(const Match& match);
  /// The ACCEPT has been sent: Starts give credit from now on.
  void accept();
  bool matched() const noexcept { return matched_.load(std::memory_order_acquire); }
  void fail_unmatched(std::uint64_t channel, Status status, std::string text);

  // An immediate with this channel's slot. On the polling thread, with the lane's lock held.
  /// @return false: it is no push of a run that may arrive now; nothing has changed
  [[nodiscard]] bool on_push(std::uint16_t token);
  /// Any other immediate.
  void on_other(std::uint16_t token);

  const Match& its_match() const noexcept { return *match_; }
  bool usable() const noexcept { return usable_.load(std::memory_order_acquire); }
  /// As NetSend::moved().
  std::uint64_t moved() const noexcept {
    return usable() ? block_->view().header().moved_count.load(std::memory_order_relaxed) : 0;
  }
  /// relaxed: no demand is in flight.
  std::uint32_t demand_count() const noexcept {
    return demand_ ? demand_->count.load(std::memory_order_relaxed) : 0;
  }
  /// Does arriving data have to be unpacked into the program's buffer?
  bool unpacks() const noexcept { return unpacks_; }
  void forget_buffer() {
    // A polling thread may be unpacking a repeated push of the sender right now.
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
    std::uint64_t again = 0;  ///< word to send after the one in flight; 0: none
    bool is_busy = false;
  };
  Status look(std::int32_t partition, bool* arrived) override;
  void open(std::uint64_t round);
  void give_credit(std::uint64_t round);
  void post_credit(std::uint64_t round);
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
  /// The peer has sent an invalid immediate.
  void break_off();
  bool complete() const;
  bool has_moved_all() const;  ///< of the round. @pre usable()

  Counters& counters_;
  /// The round that is open for writes; 0: none. seq_cst: see open() and on_notice().
  std::atomic<std::uint64_t> open_round_{0};
  NetCellSet noticed_;  ///< first cells of the runs that this side has to pull
  const bool unpacks_;
  // Written by match(), then published.
  std::optional<Match> match_;
  std::optional<net::Cells> cells_;
  std::optional<PrivateBlock> block_;
  std::optional<Arrival<RealPlatform>> arrival_;
  // For on_push().
  std::uint32_t cell_count_ = 0;  ///< cells_'s
  bool is_plain_ = false;         ///< each partition is a cell, and its bytes arrive in place
  /// Number of cells, if no thread loads a mark before the count; else 0.
  std::uint32_t unmarked_count_ = 0;
  std::atomic<std::uint8_t>* arrived_ = nullptr;       ///< the block's marks
  std::atomic<std::uint64_t>* moved_count_ = nullptr;  ///< the block's
  std::unique_ptr<CellWork[]> reads_;                  // by first cell
  std::unique_ptr<FinWork[]> fins_;                    // by first cell; guarded by the lane
  std::unique_ptr<DemandWork> demand_;                 // null: the sender takes no demands
  /// At most one credit is in flight, so that none replaces a younger one.
  struct CreditWork : vci::Work {
    NetRecv* channel = nullptr;
    static constexpr std::uint64_t kIdle = 0, kBusy = 1;
    /// kIdle, kBusy, or owing(round): it is busy, and its completion posts that round's credit.
    std::atomic<std::uint64_t> state{kIdle};
    static constexpr std::uint64_t owing(std::uint64_t round) noexcept { return round + kBusy; }
    static constexpr std::uint64_t owed_round(std::uint64_t state) noexcept {
      return state - kBusy;
    }
  };
  CreditWork credit_;
  std::atomic<bool> matched_{false}, usable_{false};
};

// Inline: with the lane's step, this is the whole path of a push. It need not enter in_use_: the
// network clears a freed channel's slot with the lane's lock held. Of a failed channel it writes
// only marks.
[[gnu::always_inline]] inline bool NetRecv::on_push(std::uint16_t token) {
  const std::uint32_t first = net::first_of(token), last = net::last_of(token);
  // relaxed: an immediate of a round follows the credit that Start gave, after the match.
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
