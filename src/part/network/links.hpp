#pragma once
// The lanes of this process on its network, and its links to peers. Each link lies on one lane.

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "control/plane/plane.hpp"
#include "net/provider.hpp"
#include "part/network/demand.hpp"
#include "part/network/probe.hpp"
#include "part/network/records.hpp"
#include "part/peer_state.hpp"
#include "vci/vci_pool.hpp"
#include "wireup/link.hpp"

namespace larklane::part {

class NetRecv;
class NetLane;

/// Text that explains `status` to a user.
std::string cause_of(const net::Fabric& fabric, Status status);

/// Detects failed links of a lane. Thread safety: thread-safe.
class LinkKeeper {
 public:
  virtual ~LinkKeeper() = default;
  /// On the helper, while rounds are open on `lane`. @return time of the next call
  virtual std::uint64_t look_after(NetLane& lane, std::uint64_t now_ns) = 0;
};

/// The receiver of one lane's immediates, and the helper's watch of that lane. The watch is on
/// while one of the lane's channels has a round open.
/// Thread safety: take_slot() and the functions after it belong to the holder of the network's
/// mutex.
class NetLane final : public net::Receiver, public control::Watched {
 public:
  static constexpr std::uint32_t kSlots = 1u << 16;  ///< bits of an immediate

  /// Called once, before any other function. @param keeper  null: no keeper looks after its links
  void begin(vci::Vci& vci, LinkKeeper* keeper) {
    vci_ = &vci;
    keeper_ = keeper;
    fd_ = vci.wait_fd();
  }
  vci::Vci& vci() const noexcept { return *vci_; }

  /// @errors kNoMemory: all are taken
  Result<std::uint16_t> take_slot(NetRecv& channel);
  /// From now on no channel gets its immediates.
  void clear_slot(std::uint16_t slot);
  DemandSlots& demands() noexcept { return demands_; }
  void set_demands(std::uint16_t slot, NetSend* channel) {
    vci_->exclusively([&] { demands_.set(slot, channel); });
  }
  /// No immediate with this slot is in flight any more.
  void give_back(std::uint16_t slot) { free_slots_.push_back(slot); }

  // control::Watched
  int fd() const noexcept override { return fd_; }
  bool before_sleep() override {
    // relaxed: a number.
    turns_at_sleep_.store(vci_->turns(), std::memory_order_relaxed);
    // acquire: pairs with want_all()'s release.
    const bool is_all_wanted = all_wanted_.load(std::memory_order_acquire) != 0;
    return vci_->arm(is_all_wanted ? net::Wake::all : net::Wake::needed);
  }
  /// Does another thread poll in a loop? A thread that has posted, or has polled once, has left.
  bool is_served_by_others() override {
    if (std::exchange(is_to_be_armed_, false)) return false;
    const std::uint64_t turns = vci_->turns();
    return turns - std::exchange(turns_, turns) >= kTurnsOfALoop;
  }
  void serve() override {
    (void)vci_->progress();
    turns_ = vci_->turns();
  }
  std::uint64_t next_time_ns() const noexcept override {
    return keeper_ != nullptr ? next_time_ns_ : kNever;
  }
  void on_time(std::uint64_t now_ns) override {
    next_time_ns_ = keeper_->look_after(*this, now_ns);
    is_to_be_armed_ = true;  // a lost device reports its loss only to arm()
  }

  void on_immediate(std::uint32_t immediate) override;

  /// From now on every arrival wakes the helper. Calls are counted; want_needed() undoes one.
  void want_all() noexcept {
    // release: pairs with before_sleep()'s acquire, after the ring.
    all_wanted_.fetch_add(1, std::memory_order_release);
    look_again();
  }
  void want_needed() noexcept { all_wanted_.fetch_sub(1, std::memory_order_relaxed); }  // a number

  /// After a waiting thread's turn that found nothing. A helper that only needed arrivals wake
  /// disturbs no thread.
  void on_empty_turn() noexcept {
    // relaxed: a number.
    if (is_slept_on() && vci_->does_all_wake() &&
        vci_->turns() - turns_at_sleep_.load(std::memory_order_relaxed) >= kTurnsToTakeOver)
      take_over();
  }

  std::uint64_t next_look_ns = 0;  ///< time of the next look at its links' silence; the keeper's

 private:
  void on_other(NetRecv* channel, std::uint32_t immediate);

  vci::Vci* vci_ = nullptr;
  LinkKeeper* keeper_ = nullptr;
  // The helper's.
  std::uint64_t next_time_ns_ = 0;
  bool is_to_be_armed_ = false;
  std::uint64_t turns_ = 0;                           // as the helper last saw them
  static constexpr std::uint64_t kTurnsOfALoop = 16;  // at least, while the helper rests
  static constexpr std::uint64_t kTurnsToTakeOver = 4 * kTurnsOfALoop;
  std::atomic<std::uint64_t> turns_at_sleep_{0};  // written by the helper
  std::atomic<std::uint32_t> all_wanted_{0};
  int fd_ = -1;
  std::vector<NetRecv*> slots_;  ///< this and the next two: guarded by the lane's lock
  NetRecv** slot_table_ = nullptr;
  std::uint32_t slot_count_ = 0;
  std::vector<std::uint16_t> free_slots_;
  DemandSlots demands_;
};

struct NetLink;
class NetLinks;

/// The first operation over a link that is connected by use (Limits::is_connected_by_use).
/// Thread safety: the holder of the network's mutex, except for the completion and is_under_way().
class LinkGreeting final : public vci::Work {
 public:
  explicit LinkGreeting(NetLink& of) noexcept : of_(of) {
    kind = Kind::settle;
    complete = &LinkGreeting::ended;
  }
  /// @param there  8 readable bytes
  void post(net::RemoteMemory there);
  /// The control plane is gone. relaxed: only the caller polls from now on.
  void keep_silent() noexcept { is_silent_.store(true, std::memory_order_relaxed); }
  /// acquire: pairs with ended()'s release: the link may end.
  bool is_under_way() const noexcept { return is_under_way_.load(std::memory_order_acquire); }

 private:
  static void ended(net::Operation& operation, Status status);
  NetLink& of_;
  std::atomic<bool> is_silent_{false};
  std::atomic<bool> is_under_way_{false};
};

/// A link to a peer, on a lane of this process; the peer's number for it is number_there(). A link
/// without a lane or without an end is lost.
/// Thread safety: any thread may read const and atomic fields. The rest belongs to the holder of
/// the network's mutex.
struct NetLink final : wireup::Link {
  /// Numbers below kCountMax carry many channels. Each other number carries one channel of this
  /// side, or, with kOfPeer, of the peer.
  static constexpr std::uint32_t kCountMax = vci::VciPool::kCountMax, kOfPeer = 1u << 31;
  static constexpr bool is_of_channel(std::uint32_t number) noexcept { return number >= kCountMax; }
  std::uint32_t number_there() const noexcept {
    return is_of_channel(number) ? number ^ kOfPeer : number;
  }

  NetLink(NetLinks& of, std::uint32_t at, std::uint32_t on, std::shared_ptr<PeerState> to,
          NetLane& its_lane)
      : links(of),
        number(at),
        lane_index(on),
        peer(std::move(to)),
        vci(its_lane.vci()),
        lane(its_lane) {}

  /// No effect on a link that carries many channels. @param slot  of the channel's half on this
  /// side
  void carry(net::ChannelHalf half, std::optional<std::uint16_t> slot, std::uint32_t partitions) {
    if (is_of_channel(number)) vci.exclusively([&] { link->carry_only(half, slot, partitions); });
  }
  /// The greeting has completed.
  void greeted(Status status) { answered(status); }

  NetLinks& links;
  const std::uint32_t number, lane_index;
  const std::shared_ptr<PeerState> peer;
  vci::Vci& vci;
  NetLane& lane;
  std::unique_ptr<net::Link> link;
  std::atomic<bool> is_lost{false};  ///< neither side can use it
  std::string why_lost;              ///< written before is_lost
  std::atomic<bool> is_cut{false};   ///< no operation of the peer arrives over it any more
  net::RemoteMemory greeting_there{};
  bool is_taken = false;     ///< for a link of a peer's channel: its receive has been found
  std::uint32_t queues = 0;  ///< net::Link::use_queues(); 0: all, or as many as the peer offers
  std::vector<std::pair<std::shared_ptr<NetRecv>, record::NetAccept>>
      accepts;  ///< sent once the link is ready
  LinkProbe probe;
  LinkGreeting greeting{*this};

  /// Is a probe or greeting in flight? Operations of channels do not count.
  bool is_some_under_way() const noexcept {
    return probe.state() == LinkProbe::State::under_way || greeting.is_under_way();
  }

 private:
  Status open() override;
  std::vector<std::byte> offer() const override {
    const std::span<const std::byte> own = link->offer();
    return {own.begin(), own.end()};
  }
  Status send_offer() override;
  Status connect(std::span<const std::byte> offer) override;
  bool is_connected_by_use() const override;
  void send_ready(Status status) override;
  void greet() override { greeting.post(greeting_there); }
  void on_served() override;
  void on_ready() override {}  // see NetLinks::on_ready()
  void on_over(Status status, Cause cause) override;
};

// Thread safety: the network's mutex, except for lanes().
// Invariants:
// 1. Link n to a peer lies on lane (n % kCountMax + first) modulo the number of lanes. Each side
// counts its own lanes, so both sides derive their own lane from the link's number. `first` differs
// from peer to peer, so that the first channels of many peers use different lanes.
// 2. Where links carry many channels, link 0 of a peer exists when any of its links does. A channel
// that can't have its own link takes link 0.
// 3. A link that carries many channels lives as long as the network. A channel's own link lives
// until both sides have closed the channel.
class NetLinks final : private vci::VciPool::Receivers {
 public:
  /// @param keeper  of all lanes; null: none @errors those of Vci::create
  static Result<std::unique_ptr<NetLinks>> create(net::Fabric& fabric,
                                                  vci::VciPool::Options options,
                                                  LinkKeeper* keeper);
  /// Closes all links, at the end.
  void close_all();

  vci::VciPool& lanes() noexcept { return lanes_; }
  /// From now on the helper serves all lanes, later ones too. @return it can
  bool watch_by(control::Plane& plane);
  /// Lanes that are made later are not watched. @return the watched lanes, which the caller
  /// unwatches
  std::vector<NetLane*> stop_watching();

  /// The link for a send that the calling thread makes.
  /// @param queues  of a link of the channel's own: its queue pairs for writes, 0: the option's
  /// @errors kUnreachable
  Result<NetLink*> for_send(const std::shared_ptr<PeerState>& peer, std::uint64_t communicator,
                            std::uint32_t queues = 0);
  /// The link for a receive until its sender chooses one. @errors kUnreachable
  Result<NetLink*> first_of(const std::shared_ptr<PeerState>& peer);
  /// May a peer name this number?
  bool is_possible(std::uint32_t number) const noexcept {
    return !NetLink::is_of_channel(number) || has_channel_links();
  }
  /// The link that a sender has chosen for a channel. Null: an invalid choice.
  NetLink* for_receive(const control::Peer& peer, std::uint32_t number);
  /// Null: there is none.
  NetLink* find(const control::Peer& peer, std::uint32_t number);

  /// @return false: the offer is invalid
  [[nodiscard]] bool on_offer(const std::shared_ptr<PeerState>& peer,
                              std::span<const std::byte> payload);
  /// Fails all rounds with the peer. @return false: link 0 was lost before
  bool lose_all(const std::shared_ptr<PeerState>& peer, Status status);
  /// @return the link, if this record makes it ready; else null
  NetLink* on_ready(const std::shared_ptr<PeerState>& peer, const record::NetReady& ready);
  /// The peer is gone: closes the links of its channels that no receive has taken.
  void close_untaken(const control::Peer& peer);
  /// The peer is gone: operations in flight over its links fail.
  void end(const control::Peer& peer);
  /// visit(NetLink&), for each link on `lane`.
  template <class Visit>
  void for_each_of(const NetLane& lane, Visit&& visit) {
    for (auto& [peer, of_peer] : peers_)
      for (auto& [number, link] : of_peer.links)
        if (&link->lane == &lane) visit(*link);
  }
  /// Both sides have closed the channel that had this link for itself.
  void close(NetLink& link);
  /// The channel was never made: the peer gets `why`.
  void give_up(NetLink& link, Status why);
  /// Ends closed links as soon as nothing is in flight over them.
  void end_closed();
  /// The link has failed, or its host does not answer. All rounds over it fail, on both sides.
  static void lose(NetLink& link, Status status) { link.lose(status); }
  /// Loses the link if it has failed, so that no other channel uses it.
  void look_for_failure(NetLink& link);
  /// @return a link or a peer has been lost since the last call
  bool take_loss() noexcept { return std::exchange(has_loss_, false); }
  /// Is a probe or greeting in flight? Operations of channels do not count.
  bool is_some_under_way() const;
  /// If ok, the peer may use the link; else neither side may.
  static void send_ready(const PeerState& peer, std::uint32_t number_there, Status status);

 private:
  struct NetPeer {
    std::uint32_t first_lane = 0;
    std::uint32_t channels_made = 0;  ///< channels of this side with a link of their own, ever
    std::uint32_t last_offered = 0;   ///< number of the peer's last link for a channel
    std::map<std::uint32_t, std::unique_ptr<NetLink>> links;
  };

  NetLinks(net::Fabric& fabric, vci::VciPool::Options options, LinkKeeper* keeper)
      : fabric_(fabric), keeper_(keeper), lanes_(fabric, *this, options) {}
  net::Receiver& of_lane(std::uint32_t index) override { return *net_lanes_[index]; }

  NetPeer& peer_of(const control::Peer& peer);
  bool has_channel_links() const noexcept { return fabric_.limits().channel_partitions_max != 0; }
  Result<NetLink*> usable(const std::shared_ptr<PeerState>& peer, std::uint32_t number);
  /// @param lane  remainder of the link's number @errors kNoMemory, kUnreachable
  Result<NetLink*> for_channel(const std::shared_ptr<PeerState>& peer, std::uint32_t lane,
                               std::uint32_t queues);
  /// The link; a new one gets its lane, but is not offered.
  NetLink& entry(const std::shared_ptr<PeerState>& peer, std::uint32_t number);
  /// The same, offered to the peer.
  Result<NetLink*> link(const std::shared_ptr<PeerState>& peer, std::uint32_t number);
  Status make_lane(std::uint32_t index);
  friend struct NetLink;
  void cut(NetLink& link, Status status);

  net::Fabric& fabric_;
  LinkKeeper* const keeper_;
  std::array<std::unique_ptr<NetLane>, vci::VciPool::kCountMax> net_lanes_;
  vci::VciPool lanes_;
  control::Plane* plane_ = nullptr;
  std::uint64_t greeting_ = 0;  ///< peers read it; their reads end before its memory goes
  std::unique_ptr<net::Memory> greeting_memory_;  ///< null: links need no greeting
  std::map<const control::Peer*, NetPeer> peers_;
  std::vector<NetLink*> closed_;  ///< each may have a probe in flight
  bool has_loss_ = false;
};

}  // namespace larklane::part
