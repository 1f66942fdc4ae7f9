#pragma once
// The channels of this process that go over a network, and the matching of sends with receives.
// Thread safety: thread-safe. Invariants:
// 1. Control words and slots are used again only after both sides have closed the channel, and
// never those of a channel that has failed: something of it may still be on its way.
// 2. Callbacks of lanes never take mutex_.
// 3. A channel is destroyed when nothing of it is under way.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "control/plane/plane.hpp"
#include "net/provider.hpp"
#include "part/matching.hpp"
#include "part/network/channel.hpp"
#include "part/network/links.hpp"
#include "vci/vci_pool.hpp"

namespace larklane::part {

class Network final : private LinkKeeper {
 public:
  /// @param silence_ns  option link_silence_ns
  static Result<std::unique_ptr<Network>> create(std::unique_ptr<net::Fabric> fabric,
                                                 vci::VciPool::Options lanes, Counters& counters,
                                                 std::uint64_t silence_ns = 0);
  /// No record comes any more. Links go before the channels: nothing completes after them.
  ~Network() override {
    if (links_) links_->close_all();
  }

  /// @param boundaries  first partition of each group
  /// @param rules       what the policy needs
  /// @param plans       where they come from, if the rules ask for a planner
  Result<SendRequest*> send_init(const InitArgs& args, const std::shared_ptr<PeerState>& peer,
                                 const std::vector<std::uint32_t>& boundaries,
                                 GroupRules rules = {}, const PlanSource& plans = {});
  Result<RecvRequest*> recv_init(const InitArgs& args, const std::shared_ptr<PeerState>& peer);
  /// @errors kInvalidArgument: it is none of ours; kAlreadyActive
  Status free(Request* request);

  /// Every request has been freed: wait until nothing is under way, 2 s at most, and tell peers.
  void settle() {
    Network* const own = this;
    settle({&own, 1});
  }
  /// The same of all of a process's, none of which waits for another.
  static void settle(std::span<Network* const> networks);
  /// Has `peer` sent an INIT that the next receive with these arguments gets?
  bool has_incoming(const InitArgs& args, const PeerState& peer);

  /// The send that `key`'s next receive would get can't be had.
  void fail_posted(const MatchKey& key, const char* why);

  /// On the helper. @param peer  who has sent it
  void on_record(const std::shared_ptr<PeerState>& peer, const control::Record& record);
  void on_peer_down(const control::Peer& peer);
  /// Of a peer that is known to be down: what is under way with it ends.
  void end_links(const control::Peer& peer);

  void add_totals(RoundTotals* sent, RoundTotals* received) const;
  const net::Limits& limits() const noexcept { return fabric_->limits(); }
  vci::VciPool& lanes() noexcept { return links_->lanes(); }

  /// The helper of `plane` serves each lane while rounds are open on it. @return it can
  bool watch_by(control::Plane& plane) {
    const std::scoped_lock lock(mutex_);
    return links_->watch_by(plane);
  }
  /// Before the plane goes.
  void unwatch(control::Plane& plane);
  /// Every so often while rounds are open: links on `lane` that are silent are probed, and those
  /// whose probe has failed are lost.
  std::uint64_t look_after(NetLane& lane, std::uint64_t now_ns) override;

 private:
  /// Tells peers of the freed requests of which nothing is under way any more. @return nothing is
  bool is_settled();
  explicit Network(std::unique_ptr<net::Fabric> fabric, Counters& counters,
                   std::uint64_t silence_ns)
      : fabric_(std::move(fabric)),
        counters_(counters),
        silence_ns_(silence_ns),
        controls_(*fabric_),
        notices_(*fabric_) {}
  struct Incoming {
    std::shared_ptr<PeerState> peer;
    record::NetInit init{};
    std::optional<std::uint64_t> sender_rounds{};  ///< it has been freed after as many
  };

  NetPath path_locked(NetLink& link) {
    return {&link, &links_->lanes(), link.peer, limits().is_progress_manual};
  }
  /// What a send has been given before it is made.
  struct SendPlace {
    NetLink* link;
    std::optional<std::uint16_t> demand_slot{};
  };
  Result<SendPlace> take_place(const InitArgs& args, const std::shared_ptr<PeerState>& peer,
                               bool takes_demands);
  Result<SendRequest*> make_send(const InitArgs& args, const SendPlace& place,
                                 std::vector<std::uint32_t> groups, GroupRules rules,
                                 const PlanSource& plans);
  void on_record_locked(const std::shared_ptr<PeerState>& peer, const control::Record& record);
  /// What is left of channels whose link, or whose peer, has been lost is given back.
  void cut_off_lost_locked();
  void on_ready_locked(const std::shared_ptr<PeerState>& peer, const record::NetReady& ready);
  void refuse_locked(const std::shared_ptr<PeerState>& peer, std::uint16_t kind, std::size_t bytes);
  void on_init_locked(const std::shared_ptr<PeerState>& peer, const record::NetInit& init);
  void on_accept(const control::Peer& from, const record::NetAccept& accept);
  void on_close_locked(const control::Peer& from, const record::NetClose& close);
  void on_fail_locked(const control::Peer& from, const record::Fail& fail);
  void match_locked(const std::shared_ptr<NetRecv>& channel, const Incoming& incoming);
  static void match_freed(NetRecv& channel);  ///< with a send that had no round
  /// Answers the close of a send that no receive has taken, and gives back what it had here.
  void close_unmatched_locked(PeerState& peer, const record::NetInit& init);
  Status take_match_locked(NetRecv& channel, const record::NetInit& init, NetLink& link,
                           NetRecv::Match* match);
  /// What nobody has been told of.
  void give_back_locked(const NetRecv::Match& match, NetLink& link);
  static void send_accept_locked(NetLink& link, const std::shared_ptr<NetRecv>& channel,
                                 const record::NetAccept& accept);
  void look_for_silence_locked(NetLane& lane);
  void reap_locked();
  void release_locked(NetRecv& channel);
  void release_locked(NetSend& channel);
  /// @param are_over  none is on its way any more
  static void release_demands_locked(const SendPlace& place, bool are_over);

  const std::unique_ptr<net::Fabric> fabric_;
  Counters& counters_;
  const std::uint64_t silence_ns_;
  NetWordPool controls_, notices_;
  std::unique_ptr<NetLinks> links_;

  mutable std::mutex mutex_;
  // guarded by mutex_
  std::uint64_t last_channel_ = 0;
  std::map<const control::Peer*, std::uint64_t> last_inits_;  ///< number of the last one
  RoundTotals freed_sends_, freed_receives_;
  std::unordered_map<const Request*, std::shared_ptr<NetSend>> sends_;
  std::unordered_map<const Request*, std::shared_ptr<NetRecv>> receives_;
  std::map<std::uint64_t, std::shared_ptr<NetSend>> sends_by_id_;  ///< until both have closed
  std::unordered_map<ChannelKey, std::shared_ptr<NetRecv>, ChannelKey::Hash>
      matched_;                                          ///< likewise
  std::vector<std::shared_ptr<NetSend>> leaving_sends_;  ///< freed, something under way
  std::vector<std::shared_ptr<NetRecv>> leaving_receives_;
  Matching<NetRecv, Incoming> matching_;
};

}  // namespace larklane::part
