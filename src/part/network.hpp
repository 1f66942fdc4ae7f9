#pragma once
// The channels of this process that go over a network: links to peers, and the matching of sends
// with receives. Thread safety: thread-safe.
// Invariants:
// 1. Control words and slots are used again only after both sides have closed the channel, and
// never those of a channel that has failed: something of it may still be on its way.
// 2. The lane's callbacks never take mutex_.
// 3. A channel is destroyed when nothing of it is under way.

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "control/plane.hpp"
#include "net/provider.hpp"
#include "part/matching.hpp"
#include "part/net_channel.hpp"
#include "vci/vci.hpp"

namespace larklane::part {

class Network final : public control::Watched, private net::Receiver {
 public:
  static Result<std::unique_ptr<Network>> create(std::unique_ptr<net::Fabric> fabric,
                                                 Counters& counters);
  ~Network() override;  ///< no record comes any more

  /// @param boundaries  first partition of each group
  Result<SendRequest*> send_init(const InitArgs& args, const std::shared_ptr<PeerState>& peer,
                                 const std::vector<std::uint32_t>& boundaries);
  Result<RecvRequest*> recv_init(const InitArgs& args, const std::shared_ptr<PeerState>& peer);
  /// @errors kInvalidArgument: it is none of ours; kAlreadyActive
  Status free(Request* request);

  /// Every request has been freed: wait until nothing is under way, 2 s at most, and tell peers.
  void settle();
  /// A peer that is gone, and has left an INIT that nobody has asked for; null if there is none.
  std::shared_ptr<PeerState> who_left(const control::Address& address);

  /// The send that `key`'s next receive would get can't be had.
  void fail_posted(const MatchKey& key, const char* why);

  /// On the helper. @param peer  who has sent it
  void on_record(const std::shared_ptr<PeerState>& peer, const control::Record& record);
  void on_peer_down(const control::Peer& peer);
  /// Of a peer that is known to be down: what is under way with it ends.
  void end_links(const control::Peer& peer);

  void add_totals(RoundTotals* sent, RoundTotals* received) const;
  const net::Limits& limits() const noexcept { return fabric_->limits(); }
  vci::Vci& lane() noexcept { return *vci_; }

  // control::Watched: the helper serves the lane while rounds are open.
  int fd() const noexcept override { return wait_fd_; }
  bool before_sleep() override { return vci_->arm(); }
  void serve() override { (void)vci_->progress(); }

 private:
  explicit Network(std::unique_ptr<net::Fabric> fabric, Counters& counters)
      : fabric_(std::move(fabric)),
        counters_(counters),
        controls_(*fabric_),
        notices_(*fabric_),
        slots_(std::make_unique<std::atomic<NetRecv*>[]>(kSlots)) {}

  /// A peer and our link to it.
  struct NetPeer {
    std::shared_ptr<PeerState> state;
    std::unique_ptr<net::Link> link;
    bool is_connected = false;  ///< it may use our link
    bool is_ready = false;      ///< we may use it
    std::vector<std::pair<std::shared_ptr<NetRecv>, record::NetAccept>> accepts;  ///< until then
  };
  struct Incoming {
    std::shared_ptr<PeerState> peer;
    record::NetInit init{};
    std::optional<std::uint64_t> sender_rounds{};  ///< it has been freed after as many
  };
  using ChannelKey = std::pair<const control::Peer*, std::uint64_t>;

  // net::Receiver, with the lane's lock held.
  void on_immediate(std::uint32_t immediate) override;

  Result<NetPeer*> peer_locked(const std::shared_ptr<PeerState>& state);
  Result<NetPath> path_locked(const std::shared_ptr<PeerState>& state);
  void on_offer_locked(NetPeer& peer, std::span<const std::byte> payload);
  void on_ready_locked(NetPeer& peer, const record::NetReady& ready);
  void lose_link_locked(PeerState& peer, Status status, bool is_told);
  void on_init_locked(const std::shared_ptr<PeerState>& peer, const record::NetInit& init);
  void on_accept(const control::Peer& from, const record::NetAccept& accept);
  void on_close_locked(const control::Peer& from, const record::NetClose& close);
  void on_fail_locked(const control::Peer& from, const record::Fail& fail);
  void match_locked(const std::shared_ptr<NetRecv>& channel, const Incoming& incoming);
  Status take_match_locked(NetRecv& channel, const record::NetInit& init, NetRecv::Match* match);
  void send_accept_locked(NetPeer& peer, const std::shared_ptr<NetRecv>& channel,
                          const record::NetAccept& accept);
  void reap_locked();
  void release_locked(NetRecv& channel);

  static constexpr std::uint32_t kSlots = 1u << 16;

  const std::unique_ptr<net::Fabric> fabric_;
  Counters& counters_;
  NetWordPool controls_, notices_;
  /// Receives by slot. Stored with the lane's lock held, as they are read.
  const std::unique_ptr<std::atomic<NetRecv*>[]> slots_;
  std::unique_ptr<vci::Vci> vci_;
  int wait_fd_ = -1;

  mutable std::mutex mutex_;
  // guarded by mutex_
  std::uint64_t last_channel_ = 0;
  RoundTotals freed_sends_, freed_receives_;
  std::map<const control::Peer*, NetPeer> peers_;
  std::vector<std::uint16_t> free_slots_;
  std::uint32_t used_slots_ = 0;
  std::unordered_map<const Request*, std::shared_ptr<NetSend>> sends_;
  std::unordered_map<const Request*, std::shared_ptr<NetRecv>> receives_;
  std::map<std::uint64_t, std::shared_ptr<NetSend>> sends_by_id_;  ///< until both have closed
  std::map<ChannelKey, std::shared_ptr<NetRecv>> matched_;         ///< likewise
  std::vector<std::shared_ptr<NetSend>> leaving_sends_;            ///< freed, something under way
  std::vector<std::shared_ptr<NetRecv>> leaving_receives_;
  Matching<NetRecv, Incoming> matching_;
};

}  // namespace larklane::part
