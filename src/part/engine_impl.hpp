#pragma once
// The engine of one process: its peers, its transports, and the policies of its requests.
// Thread safety: thread-safe.

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "part/engine.hpp"
#include "part/policy/registry.hpp"
#include "part/program_steps.hpp"
#include "part/transport.hpp"
#include "shm/region.hpp"

namespace larklane::part {

class EngineImpl final : public Engine, private control::Handler {
 public:
  EngineImpl(Config config, std::shared_ptr<const shm::Regions> regions, control::Handler* beside);
  ~EngineImpl() override;
  Status open(std::vector<control::Listener> own, std::unique_ptr<net::Fabric> fabric,
              std::optional<OtherHosts> others);

  Status reachable(const control::Address& peer) override;
  Result<SendRequest*> send_init(const InitArgs& args) override;
  Result<RecvRequest*> recv_init(const InitArgs& args) override;
  Status free(Request* request) override;
  Summary summary() const override;
  control::Plane& plane() override { return *plane_; }
  void look_at_descriptors() override { plane_->look_at_descriptors(); }
  void help() override {
    if (!steps_.empty()) [[unlikely]]
      steps_.carry_out();
  }

 private:
  // Handler, on the helper.
  void on_record(control::Peer& from, const control::Record& record) override;
  void on_peer_down(control::Peer& peer) override;
  /// The transport of all pairs with `peer`. A process gains nothing from a network to itself.
  Transport& transport_for(const control::Peer& peer) const;

  static Status check(const InitArgs& args);
  /// @param transport  of the pair
  Result<PolicyPointer> policy_of(const InitArgs& args, const Transport& transport);
  /// The measurements for this host and the transport's fabric, else for this host; null: none are
  /// usable. The first call reads them.
  const model::Tuning* tuning(const Transport& transport);
  const model::Tuning* tuning_of(std::string_view fabric);
  Result<std::shared_ptr<PeerState>> connect(const control::Address& address);
  /// The oldest process at the address of `args` with an INIT that the receive gets; null: none
  /// yet.
  std::shared_ptr<PeerState> sender_of(const InitArgs& args);
  std::shared_ptr<PeerState> state_of_locked(control::Peer& peer);
  /// acquire: pairs with on_peer_down's release.
  static bool is_down(const PeerState& peer) { return peer.down.load(std::memory_order_acquire); }

  const Config config_;
  control::Handler* const beside_;  // null: none
  Counters counters_;
  ProgramSteps steps_;
  std::mutex policies_mutex_;
  /// Of the option, by transport. Guarded by policies_mutex_.
  std::map<const Transport*, Result<PolicyPointer>> policies_;
  std::mutex tunings_mutex_;  // the last lock
  /// By fabric, as far as they were asked for. Guarded by tunings_mutex_; none is changed.
  std::map<std::string, std::optional<model::Tuning>, std::less<>> tunings_;

  // From here to plane_ written by open().
  control::Address own_address_;
  bool is_all_network_ = false;                         ///< peers on this host use a network, too
  std::vector<std::unique_ptr<Transport>> transports_;  ///< shared memory, then the networks
  std::unordered_map<control::Address, std::size_t> network_of_;  ///< OtherHosts::fabric_of

  mutable std::mutex mutex_;
  // guarded by mutex_
  std::map<control::Peer*, std::shared_ptr<PeerState>> peers_;
  /// Results of connect(). A peer that is down is searched for again.
  std::unordered_map<control::Address, std::shared_ptr<PeerState>> connected_;
  /// The states in peers_, by address, the oldest first: processes that have ended, and the living
  /// one.
  std::unordered_map<control::Address, std::vector<std::shared_ptr<PeerState>>> peers_at_;

  std::unique_ptr<control::Plane> plane_;  // last: its helper calls the handler until it is gone
};

}  // namespace larklane::part
