#pragma once
// The lanes of this process on its network, and its links to peers, of which each lies on a lane.

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
#include "part/shared/channel.hpp"
#include "vci/vci_pool.hpp"
#include "wireup/link.hpp"

namespace larklane::part {

class NetRecv;
class NetLane;

/// For people.
std::string cause_of(const net::Fabric& fabric, Status status);

/// Finds out what has become of the links of a lane. Thread safety: thread-safe.
class LinkKeeper {
 public:
  virtual ~LinkKeeper() = default;
  /// On the helper, while rounds are open on `lane`. @return when it wants to be called again
  virtual std::uint64_t look_after(NetLane& lane, std::uint64_t now_ns) = 0;
};

/// Who hears what comes in on one lane, and the helper's watch of it: on while one of its channels
/// has a round open.
/// Thread safety: take_slot and what follows belong to who holds the network's mutex.
class NetLane final : public net::Receiver, public control::Watched {
 public:
  static constexpr std::uint32_t kSlots = 1u << 16;  ///< bits of an immediate

  /// Once, before anything else. @param keeper  null: nobody looks after its links
  void begin(vci::Vci& vci, LinkKeeper* keeper) {
    vci_ = &vci;
    keeper_ = keeper;
    fd_ = vci.wait_fd();
  }
  vci::Vci& vci() const noexcept { return *vci_; }

  /// @errors kNoMemory: all are taken
  Result<std::uint16_t> take_slot(NetRecv& channel);
  /// From now on its immediates are heard by nobody.
  void clear_slot(std::uint16_t slot);
  DemandSlots& demands() noexcept { return demands_; }
  void set_demands(std::uint16_t slot, NetSend* channel) {
    vci_->exclusively([&] { demands_.set(slot, channel); });
  }
  /// No immediate with it is on its way any more.
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
  /// By a loop: who has posted, or looked once, has left.
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
    is_to_be_armed_ = true;  // a device that is lost says so then alone
  }

  void on_immediate(std::uint32_t immediate) override;

  /// Whatever comes wakes the helper, from now on; once more, and once less.
  void want_all() noexcept {
    // release: pairs with before_sleep()'s acquire, after the ring.
    all_wanted_.fetch_add(1, std::memory_order_release);
    look_again();
  }
  void want_needed() noexcept { all_wanted_.fetch_sub(1, std::memory_order_relaxed); }  // a number

  /// After a turn that has found nothing, by a thread that waits. A helper that sleeps until there
  /// is something that can't wait is in nobody's way.
  void on_empty_turn() noexcept {
    // relaxed: a number.
    if (is_slept_on() && vci_->does_all_wake() &&
        vci_->turns() - turns_at_sleep_.load(std::memory_order_relaxed) >= kTurnsToTakeOver)
      take_over();
  }

  std::uint64_t next_look_ns = 0;  ///< at its links' silence; the keeper's

 private:
  void on_other(NetRecv* channel, std::uint32_t immediate);

  vci::Vci* vci_ = nullptr;
  LinkKeeper* keeper_ = nullptr;
  // The helper's.
  std::uint64_t next_time_ns_ = 0;
  bool is_to_be_armed_ = false;
  std::uint64_t turns_ = 0;                           // that the helper has seen
  static constexpr std::uint64_t kTurnsOfALoop = 16;  // at least, while the helper rests
  static constexpr std::uint64_t kTurnsToTakeOver = 4 * kTurnsOfALoop;
  std::atomic<std::uint64_t> turns_at_sleep_{0};  // written by the helper
  std::atomic<std::uint32_t> all_wanted_{0};
  int fd_ = -1;
  std::vector<NetRecv*> slots_;  ///< this and the next two: with the lane's lock held
  NetRecv** slot_table_ = nullptr;
  std::uint32_t slot_count_ = 0;
  std::vector<std::uint16_t> free_slots_;
  DemandSlots demands_;
};

struct NetLink;
class NetLinks;

/// The first operation over a link that is connected by it (Limits::is_connected_by_use).
/// Thread safety: who holds the network's mutex, but for the completion and is_under_way().
class LinkGreeting final : public vci::Work {
 public:
  explicit LinkGreeting(NetLink& of) noexcept : of_(of) {
    kind = Kind::settle;
    complete = &LinkGreeting::ended;
  }
  /// @param there  8 bytes that may be read
  void post(net::RemoteMemory there);
  /// The control plane is gone. relaxed: nobody but the caller polls any more.
  void keep_silent() noexcept { is_silent_.store(true, std::memory_order_relaxed); }
  /// acquire: pairs with ended()'s release: the link may go.
  bool is_under_way() const noexcept { return is_under_way_.load(std::memory_order_acquire); }

 private:
  static void ended(net::Operation& operation, Status status);
  NetLink& of_;
  std::atomic<bool> is_silent_{false};
  std::atomic<bool> is_under_way_{false};
};

/// A link to a peer, on a lane of ours: the peer has one with the number_there(). One whose lane or
/// whose link could not be had is lost.
/// Thread safety: what is const or atomic may be read by anybody; the rest belongs to who holds the
/// network's mutex.
struct NetLink final : wireup::Link {
  /// Those below kCountMax carry many channels; others one of ours, or, with kOfPeer, of the
  /// peer's.
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

  /// @param slot  of the half of the channel that is here; of a link that carries others, too,
  /// nothing
  void carry(net::ChannelHalf half, std::optional<std::uint16_t> slot, std::uint32_t partitions) {
    if (is_of_channel(number)) vci.exclusively([&] { link->carry_only(half, slot, partitions); });
  }
  /// The greeting's completion.
  void greeted(Status status) { answered(status); }

  NetLinks& links;
  const std::uint32_t number, lane_index;
  const std::shared_ptr<PeerState> peer;
  vci::Vci& vci;
  NetLane& lane;
  std::unique_ptr<net::Link> link;
  std::atomic<bool> is_lost{false};  ///< there is no way over it, nor back
  std::string why_lost;              ///< written before that
  std::atomic<bool> is_cut{false};   ///< nothing of the peer's reaches us over it any more
  net::RemoteMemory greeting_there{};
  bool is_taken = false;  ///< of a channel of the peer's: its receive has been found
  std::vector<std::pair<std::shared_ptr<NetRecv>, record::NetAccept>>
      accepts;  ///< until it is ready
  LinkProbe probe;
  LinkGreeting greeting{*this};

  /// No channel's.
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

// Thread safety: the network's mutex, but for lanes().
// Invariants:
// 1. Link n to a peer lies on lane (n % kCountMax + first) modulo the number of lanes, which each
//    side counts for itself, so that both sides know their own lane from the link's number. `first`
//    differs from peer to peer, so that the first channels of many peers don't meet on one lane.
// 2. Where links carry many channels, link 0 of a peer is there when any is. What can't have its
//    own takes that one.
// 3. A link that carries many channels lives as long as the network; a channel's, until the channel
//    is closed on both sides.
class NetLinks final : private vci::VciPool::Receivers {
 public:
  /// @param keeper  of all lanes; null: there is none @errors those of Vci::create
  static Result<std::unique_ptr<NetLinks>> create(net::Fabric& fabric,
                                                  vci::VciPool::Options options,
                                                  LinkKeeper* keeper);
  /// All links, at the end.
  void close_all();

  vci::VciPool& lanes() noexcept { return lanes_; }
  /// The helper serves lanes from now on, those that are made later, too. @return it can
  bool watch_by(control::Plane& plane);
  /// Lanes that are made later are not watched. @return those that are: the caller unwatches them
  std::vector<NetLane*> stop_watching();

  /// For a send that the calling thread makes. @errors kUnreachable
  Result<NetLink*> for_send(const std::shared_ptr<PeerState>& peer, std::uint64_t communicator);
  /// For a receive whose sender has not chosen yet. @errors kUnreachable
  Result<NetLink*> first_of(const std::shared_ptr<PeerState>& peer);
  /// As a peer may name it.
  bool is_possible(std::uint32_t number) const noexcept {
    return !NetLink::is_of_channel(number) || has_channel_links();
  }
  /// The one that a sender has chosen for a channel. Null: it can't be that one.
  NetLink* for_receive(const control::Peer& peer, std::uint32_t number);
  /// Null: there is none.
  NetLink* find(const control::Peer& peer, std::uint32_t number);

  /// @return false: it makes no sense
  [[nodiscard]] bool on_offer(const std::shared_ptr<PeerState>& peer,
                              std::span<const std::byte> payload);
  /// All rounds with the peer fail. @return false: it was lost before
  bool lose_all(const std::shared_ptr<PeerState>& peer, Status status);
  /// @return the link, if it can be used from now on; else null
  NetLink* on_ready(const std::shared_ptr<PeerState>& peer, const record::NetReady& ready);
  /// The peer is gone: no channel of its will take one any more.
  void close_untaken(const control::Peer& peer);
  /// What is under way over the links to a peer that is gone has failed.
  void end(const control::Peer& peer);
  /// visit(NetLink&), for each on `lane`.
  template <class Visit>
  void for_each_of(const NetLane& lane, Visit&& visit) {
    for (auto& [peer, of_peer] : peers_)
      for (auto& [number, link] : of_peer.links)
        if (&link->lane == &lane) visit(*link);
  }
  /// The channel that it may have carried alone is closed on both sides.
  void close(NetLink& link);
  /// That channel has never come to be: the peer is told.
  void give_up(NetLink& link, Status why);
  /// What is closed and could not end yet.
  void end_closed();
  /// Its host does not answer. All rounds over it fail, on both sides.
  static void lose(NetLink& link, Status status) { link.lose(status); }
  /// One that has failed under a channel carries no other.
  void look_for_failure(NetLink& link);
  /// @return some link has been lost, or its peer, since the last call
  bool take_loss() noexcept { return std::exchange(has_loss_, false); }
  /// No channel's: probes, greetings.
  bool is_some_under_way() const;
  /// The peer may use the link, or, if not ok, nobody may.
  static void send_ready(const PeerState& peer, std::uint32_t number_there, Status status);

 private:
  struct NetPeer {
    std::uint32_t first_lane = 0;
    std::uint32_t channels_made = 0;  ///< of ours that have a link of their own, ever
    std::uint32_t last_offered = 0;   ///< number of the last link for a channel of the peer's
    std::map<std::uint32_t, std::unique_ptr<NetLink>> links;
  };

  NetLinks(net::Fabric& fabric, vci::VciPool::Options options, LinkKeeper* keeper)
      : fabric_(fabric), keeper_(keeper), lanes_(fabric, *this, options) {}
  net::Receiver& of_lane(std::uint32_t index) override { return *net_lanes_[index]; }

  NetPeer& peer_of(const control::Peer& peer);
  bool has_channel_links() const noexcept { return fabric_.limits().channel_partitions_max != 0; }
  Result<NetLink*> usable(const std::shared_ptr<PeerState>& peer, std::uint32_t number);
  /// @param lane  the number's remainder @errors kNoMemory, kUnreachable
  Result<NetLink*> for_channel(const std::shared_ptr<PeerState>& peer, std::uint32_t lane);
  /// Made, as far as its lane, if it is not there.
  NetLink& entry(const std::shared_ptr<PeerState>& peer, std::uint32_t number);
  /// Offered to the peer, too.
  Result<NetLink*> link(const std::shared_ptr<PeerState>& peer, std::uint32_t number);
  Status make_lane(std::uint32_t index);
  friend struct NetLink;
  void cut(NetLink& link, Status status);

  net::Fabric& fabric_;
  LinkKeeper* const keeper_;
  std::array<std::unique_ptr<NetLane>, vci::VciPool::kCountMax> net_lanes_;
  vci::VciPool lanes_;
  control::Plane* plane_ = nullptr;
  std::uint64_t greeting_ = 0;  ///< what peers read; their reads end before the memory goes
  std::unique_ptr<net::Memory> greeting_memory_;  ///< null: nobody greets
  std::map<const control::Peer*, NetPeer> peers_;
  std::vector<NetLink*> closed_;  ///< but a probe may be under way
  bool has_loss_ = false;
};

}  // namespace larklane::part
