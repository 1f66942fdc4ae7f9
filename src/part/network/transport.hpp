#pragma once
// The channels of this process over one network, and the matching of sends with receives.
// Thread safety: thread-safe.
// Invariants:
// 1. Control words and slots are reused only after both sides have closed the channel. Those of a
// failed channel are never reused: operations of it may still be in flight.
// 2. Callbacks of lanes never take mutex_.
// 3. A channel is destroyed when nothing of it is in flight.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/config.hpp"
#include "base/status.hpp"
#include "control/plane/plane.hpp"
#include "net/provider.hpp"
#include "part/matching.hpp"
#include "part/network/channel.hpp"
#include "part/network/links.hpp"
#include "part/transport.hpp"
#include "vci/vci_pool.hpp"

namespace larklane::part {

class NetworkTransport final : public Transport, private LinkKeeper {
 public:
  /// @param silence_ns       option link_silence_ns
  /// @param demand_after_ns  option demand_after_ns
  static Result<std::unique_ptr<NetworkTransport>> create(std::unique_ptr<net::Fabric> fabric,
                                                          vci::VciPool::Options lanes,
                                                          Report report,
                                                          std::uint64_t silence_ns = 0,
                                                          std::uint64_t demand_after_ns = 0);
  /// No record arrives any more. Links go before the channels: nothing completes after them.
  ~NetworkTransport() override {
    if (links_) links_->close_all();
  }

  // Transport
  Result<SendRequest*> make_send(const InitArgs& args, const std::shared_ptr<PeerState>& peer,
                                 const PlanSource& plans) override;
  Result<RecvRequest*> make_receive(const InitArgs& args, const std::shared_ptr<PeerState>& peer,
                                    IfUnmatched if_unmatched) override {
    return recv_init(args, peer, if_unmatched);
  }
  bool has_incoming(const InitArgs& args, const PeerState& peer) override;
  Status free(Request* request) override;
  bool takes(std::uint16_t kind) const override {
    return kind >= static_cast<std::uint16_t>(record::NetType::offer);
  }
  void on_record(const std::shared_ptr<PeerState>& peer, const control::Record& record) override;
  void on_down(PeerState& peer) override {
    end_links(*peer.peer);  // before other channels get the slots that it can still address
    on_peer_down(*peer.peer);
  }
  void fail_posted(const MatchKey& key, const char* why) override;
  std::string_view fabric() const override {
    const std::string_view network = limits().network;  // "verbs/roce"
    return network.substr(0, network.find('/'));
  }
  void begin(control::Plane& plane) override;
  void end(control::Plane& plane) override;
  bool is_settled() override;
  std::uint32_t progress() override { return lanes().progress_all(); }
  void add_totals(RoundTotals* sent, RoundTotals* received) const override;
  PeerUse use_of(const PeerState& peer) const override {
    const std::scoped_lock lock(mutex_);
    return peer.use;
  }
  /// A peer that uses a network sends `record`, and this process does not use one with it. Answers
  /// an INIT. @return the key of its send; nullopt: it is no INIT of a network
  static std::optional<MatchKey> refuse(PeerState& peer, const control::Record& record);

  // The same, step by step.
  /// @param boundaries  first partition of each group
  /// @param rules       needs of the policy
  /// @param plans       source of plans, if the rules have a planner
  /// @param queues      Policy::queues()
  Result<SendRequest*> send_init(const InitArgs& args, const std::shared_ptr<PeerState>& peer,
                                 const std::vector<std::uint32_t>& boundaries,
                                 GroupRules rules = {}, const PlanSource& plans = {},
                                 std::uint32_t queues = 0);
  Result<RecvRequest*> recv_init(const InitArgs& args, const std::shared_ptr<PeerState>& peer,
                                 IfUnmatched if_unmatched = IfUnmatched::wait);
  void settle() {
    Transport* const own = this;
    Transport::settle({&own, 1});
  }
  void on_peer_down(const control::Peer& peer);
  /// `peer` is known to be down: operations in flight to it end.
  void end_links(const control::Peer& peer);

  const net::Limits& limits() const noexcept { return fabric_->limits(); }
  vci::VciPool& lanes() noexcept { return links_->lanes(); }
  /// The helper of `plane` serves each lane while rounds are open on it. @return it can
  bool watch_by(control::Plane& plane) {
    const std::scoped_lock lock(mutex_);
    return links_->watch_by(plane);
  }
  /// Called before the plane ends.
  void unwatch(control::Plane& plane) { end(plane); }
  /// Called periodically while rounds are open: probes silent links on `lane`, and loses links with
  /// a failed probe.
  std::uint64_t look_after(NetLane& lane, std::uint64_t now_ns) override;

 private:
  NetworkTransport(std::unique_ptr<net::Fabric> fabric, Report report, std::uint64_t silence_ns,
                   std::uint64_t demand_after_ns)
      : Transport(std::move(report)),
        fabric_(std::move(fabric)),
        silence_ns_(silence_ns),
        demand_after_ns_(demand_after_ns),
        controls_(*fabric_),
        notices_(*fabric_) {}
  struct Incoming {
    std::shared_ptr<PeerState> peer;
    record::NetInit init{};
    std::optional<std::uint64_t> sender_rounds{};  ///< its rounds, if the sender has freed it
  };

  NetPath path_locked(NetLink& link) {
    return {&link, &links_->lanes(), limits().is_progress_manual};
  }
  /// Resources that a send takes before it is made.
  struct SendPlace {
    NetLink* link;
    std::optional<std::uint16_t> demand_slot{};
  };
  Result<SendPlace> take_place(const InitArgs& args, const std::shared_ptr<PeerState>& peer,
                               bool takes_demands, std::uint32_t queues);
  Result<SendRequest*> make_at(const InitArgs& args, const SendPlace& place,
                               std::vector<std::uint32_t> groups, GroupRules rules,
                               const PlanSource& plans);
  void note_locked(PeerState& peer, const InitArgs& args, Kind kind);
  void on_record_locked(const std::shared_ptr<PeerState>& peer, const control::Record& record);
  /// Releases the keys of channels that have lost their link or peer.
  void cut_off_lost_locked();
  void on_ready_locked(const std::shared_ptr<PeerState>& peer, const record::NetReady& ready);
  void refuse_locked(const std::shared_ptr<PeerState>& peer, std::uint16_t kind, std::size_t bytes);
  void on_init_locked(const std::shared_ptr<PeerState>& peer, const record::NetInit& init);
  void on_accept(const control::Peer& from, const record::NetAccept& accept);
  void on_close_locked(const control::Peer& from, const record::NetClose& close);
  void on_fail_locked(const control::Peer& from, const record::Fail& fail);
  void match_locked(const std::shared_ptr<NetRecv>& channel, const Incoming& incoming);
  static void match_freed(NetRecv& channel);  ///< with a send that had no round
  /// Answers the CLOSE of a send that no receive has taken, and releases its link here.
  void close_unmatched_locked(PeerState& peer, const record::NetInit& init);
  Status take_match_locked(NetRecv& channel, const record::NetInit& init, NetLink& link,
                           NetRecv::Match* match);
  /// Gives back a match that no peer knows of.
  void give_back_locked(const NetRecv::Match& match, NetLink& link);
  static void send_accept_locked(NetLink& link, const std::shared_ptr<NetRecv>& channel,
                                 const record::NetAccept& accept);
  void look_for_silence_locked(NetLane& lane);
  void reap_locked();
  void release_locked(NetRecv& channel);
  void release_locked(NetSend& channel);
  /// @param are_over  no demand is in flight any more
  static void release_demands_locked(const SendPlace& place, bool are_over);

  const std::unique_ptr<net::Fabric> fabric_;
  const std::uint64_t silence_ns_, demand_after_ns_;
  NetWordPool controls_, notices_;
  std::unique_ptr<NetLinks> links_;

  mutable std::mutex mutex_;
  // guarded by mutex_
  std::uint64_t last_channel_ = 0;
  std::map<const control::Peer*, std::uint64_t> last_inits_;  ///< channel number of the peer's last
                                                              ///< INIT
  RoundTotals freed_sends_, freed_receives_;
  std::unordered_map<const Request*, std::shared_ptr<NetSend>> sends_;
  std::unordered_map<const Request*, std::shared_ptr<NetRecv>> receives_;
  std::map<std::uint64_t, std::shared_ptr<NetSend>> sends_by_id_;  ///< until both sides have closed
  std::unordered_map<ChannelKey, std::shared_ptr<NetRecv>, ChannelKey::Hash>
      matched_;                                          ///< likewise
  std::vector<std::shared_ptr<NetSend>> leaving_sends_;  ///< freed, but not settled
  std::vector<std::shared_ptr<NetRecv>> leaving_receives_;
  Matching<NetRecv, Incoming> matching_;
};

/// A transport for each network, all with one set of lanes in use by waiting threads.
Result<std::vector<std::unique_ptr<Transport>>> open_networks(
    std::vector<std::unique_ptr<net::Fabric>> fabrics, const Config& config,
    const Transport::Report& report);

}  // namespace larklane::part
