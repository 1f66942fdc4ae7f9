#pragma once
// The engine of one process: its channels, and the matching of sends with receives.
// Thread safety: thread-safe.
// Invariants:
// 1. Per key, INITs and receives pair first come first served; a freed half keeps its place as a
// tombstone.
// 2. A block is reused only after both sides have closed its channel, or the peer's process has
// ended.
// 3. No copy of user data under mutex_.

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/log.hpp"
#include "part/engine.hpp"
#include "part/matching.hpp"
#include "part/network/network.hpp"
#include "part/policy/registry.hpp"
#include "part/shared/channel.hpp"
#include "shm/region.hpp"

namespace larklane::part {

/// Messages this long are handed over rather than copied twice: waking a helper costs 15-40 us, and
/// the second copy costs more.
inline constexpr std::uint64_t kHandOverBytesMin = std::uint64_t{1} << 20;
/// Longest typemap of a sender in a block: 128 MiB. The receiver copies it. Longer ones use slots.
inline constexpr std::uint64_t kTypeWordsMax = std::uint64_t{1} << 24;
/// Datatypes with smaller blocks on average use slots, up to this size of a message: with blocks of
/// 4 bytes attach takes 20 times as long.
inline constexpr std::uint64_t kAttachBlockBytesMin = 256;
inline constexpr std::uint64_t kScatteredSlotsBytesMax = std::uint64_t{256} << 20;

class EngineImpl final : public Engine, private control::Handler {
 public:
  EngineImpl(Config config, std::shared_ptr<const shm::Regions> regions)
      : config_(std::move(config)), regions_(std::move(regions)) {}
  ~EngineImpl() override;
  Status open(std::vector<control::Listener> own, std::unique_ptr<net::Fabric> fabric,
              std::optional<OtherHosts> others);

  Status reachable(const control::Address& peer) override;
  Result<SendRequest*> send_init(const InitArgs& args) override;
  Result<RecvRequest*> recv_init(const InitArgs& args) override;
  Status free(Request* request) override;
  Summary summary() const override;
  void look_at_descriptors() override { plane_->look_at_descriptors(); }
  void help() override {
    if (!steps_.empty()) [[unlikely]]
      steps_.carry_out();
  }

 private:
  /// An INIT without a matching receive.
  struct Incoming {
    std::shared_ptr<PeerState> peer;
    RecvChannel::Match match;
  };
  /// A freed send, until its receiver has closed.
  struct Closing {
    shm::Block block;
    control::Peer* peer;
  };

  // Handler, on the helper.
  void on_record(control::Peer& from, const control::Record& record) override;
  void on_peer_down(control::Peer& peer) override;
  void on_init(control::Peer& from, const control::Record& record);
  void on_datatype(control::Peer& from, std::span<const std::byte> payload);
  void on_move(control::Peer& from, const record::Move& move);
  void on_staging(control::Peer& from, const control::Record& record);
  void on_close(control::Peer& from, const record::Close& close);
  void on_fail(control::Peer& from, const record::Fail& fail);
  void on_network_record(control::Peer& from, const control::Record& record);
  void refuse_network_init(PeerState& peer, const record::NetInit& init);
  void refuse_shm_init(control::Peer& from, const record::Init& init);
  /// The network of pairs with `peer`; null: shared memory. A process gains nothing from a network
  /// to itself.
  Network* network_of(const control::Peer& peer) const;

  static Status check(const InitArgs& args);
  /// A channel's needs in shared memory.
  struct Plan {
    BlockShape shape;
    std::vector<std::uint32_t> boundaries;  ///< of the first round
  };
  static Result<Plan> plan_of(const InitArgs& args, const Policy& policy, Mode mode);
  Result<shm::Block> block_of(const BlockShape& shape);
  /// @param network  of the pair; null: shared memory
  Result<PolicyPointer> policy_of(const InitArgs& args, const Network* network);
  /// The measurements for this host and network, else for this host; null: none are usable. The
  /// first call reads them.
  const model::Tuning* tuning(const Network* network);
  const model::Tuning* tuning_of(std::string_view fabric);
  static bool can_attach(const PeerState& peer) {
    return peer.push_allowed || peer.peer->same_process();
  }
  Mode mode_for(const PeerState& peer, const InitArgs& args) const;
  Result<std::shared_ptr<PeerState>> connect(const control::Address& address);
  /// The oldest process at the address of `args` with an INIT that the receive gets; null: none
  /// yet.
  std::shared_ptr<PeerState> sender_locked(const InitArgs& args);
  std::shared_ptr<PeerState> shared_state_locked(control::Peer& peer);
  void note_peer_locked(PeerState& peer, Mode mode, const InitArgs& args, Kind kind);
  void note_network_peer(const Network& network, PeerState& peer, const InitArgs& args, Kind kind);
  std::optional<shm::Mapped> mapped(const InitArgs& args) const;
  void send_map(PeerState& peer, std::uint64_t channel, const InitArgs& args);
  void on_map(control::Peer& from, const control::Record& record);
  Status send_init_record_locked(const SendChannel& channel, const BlockShape& shape);
  Result<std::shared_ptr<shm::Segment>> segment_locked(PeerState& peer, const record::Init& init,
                                                       const control::Record& record);
  Result<RecvChannel::Match> read_init_locked(PeerState& peer, const record::Init& init,
                                              const control::Record& record);
  /// True: the receive has been started, and the caller opens its first round without the mutex.
  [[nodiscard]] bool match_locked(const std::shared_ptr<RecvChannel>& channel, Incoming incoming);
  void send_datatype(PeerState& peer, std::uint64_t channel, const Typemap& type);
  void free_send_locked(SendChannel& channel);
  void free_recv_locked(RecvChannel& channel);
  static RoundTotals totals_of(const Request& request);
  /// acquire: pairs with on_peer_down's release.
  static bool is_down(const PeerState& peer) { return peer.down.load(std::memory_order_acquire); }
  /// Releases blocks of channels with ended peers. A peer that is only down may still store into
  /// them.
  void release_ended_locked();
  /// A large block waits for its receiver's CLOSE, which goes out now.
  enum class Urgency : std::uint8_t { later, now };
  static void send_close(PeerState& peer, const record::Close& close, Urgency urgency);
  /// Sends CLOSE. If the receive gives back the sender's memory, it goes out now.
  static void answer_close(PeerState& peer, std::uint64_t channel, bool has_own_segment);
  std::shared_ptr<SendChannel> send_of(const control::Peer& from, std::uint64_t channel);
  std::shared_ptr<RecvChannel> receive_of(control::Peer& from, std::uint64_t channel);

  const Config config_;
  /// Does log_info() write? Its text for each request is expensive.
  const bool logs_info_ = log_level_named(config_.log_level) >= LogLevel::info;
  const std::shared_ptr<const shm::Regions> regions_;
  Counters counters_;
  ProgramSteps steps_;
  shm::BlockPool pool_;
  std::mutex policies_mutex_;
  /// Of the option, by network. Guarded by policies_mutex_.
  std::map<const Network*, Result<PolicyPointer>> policies_;
  std::mutex tunings_mutex_;  // the last lock
  /// By fabric, as far as they were asked for. Guarded by tunings_mutex_; none is changed.
  std::map<std::string, std::optional<model::Tuning>, std::less<>> tunings_;

  mutable std::mutex mutex_;
  // guarded by mutex_
  std::uint64_t last_channel_ = 0;
  RoundTotals freed_sends_, freed_receives_;
  std::map<control::Peer*, std::shared_ptr<PeerState>> peers_;
  /// Results of connect(). A peer that is down is searched for again.
  std::unordered_map<control::Address, std::shared_ptr<PeerState>> connected_;
  /// The states in peers_, by address, the oldest first: processes that have ended, and the living
  /// one.
  std::unordered_map<control::Address, std::vector<std::shared_ptr<PeerState>>> peers_at_;
  std::unordered_map<const Request*, std::shared_ptr<Request>> requests_;
  std::unordered_map<std::uint64_t, std::shared_ptr<SendChannel>> sends_;
  std::unordered_map<ChannelKey, std::shared_ptr<RecvChannel>, ChannelKey::Hash> receives_;
  std::unordered_map<std::uint64_t, Closing> closing_;
  Matching<RecvChannel, Incoming> matching_;

  control::Address own_address_;
  bool is_all_network_ = false;  ///< peers on this host use a network, too
  std::vector<std::unique_ptr<Network>> networks_;
  std::unordered_map<control::Address, std::size_t> network_of_;  ///< OtherHosts::fabric_of
  std::unique_ptr<control::Plane> plane_;  // last: its helper calls the handler until it is gone
};

}  // namespace larklane::part
