#pragma once
// The channels between processes of one host, and the matching of sends with receives.
// Thread safety: thread-safe.
// Invariants:
// 1. Per key, INITs and receives pair first come first served; a freed half keeps its place as a
// tombstone.
// 2. A block is reused only after both sides have closed its channel, or the peer's process has
// ended.
// 3. No copy of user data under mutex_.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "model/tuning_file.hpp"
#include "part/matching.hpp"
#include "part/policy/policy.hpp"
#include "part/program_steps.hpp"
#include "part/records.hpp"
#include "part/shared/channel.hpp"
#include "part/transport.hpp"
#include "shm/region.hpp"
#include "shm/segment.hpp"

namespace larklane::part {

/// Longest typemap of a sender in a block: 128 MiB. The receiver copies it. Longer ones use slots.
inline constexpr std::uint64_t kTypeWordsMax = std::uint64_t{1} << 24;

class SharedTransport final : public Transport {
 public:
  /// @param config, steps  outlive the transport
  SharedTransport(const Config& config, std::shared_ptr<const shm::Regions> regions, Report report,
                  ProgramSteps& steps)
      : Transport(std::move(report)),
        config_(config),
        regions_(std::move(regions)),
        steps_(steps) {}

  void on_new_peer(PeerState& peer) override;
  Result<SendRequest*> make_send(const InitArgs& args, const std::shared_ptr<PeerState>& peer,
                                 const PlanSource& plans) override;
  Result<RecvRequest*> make_receive(const InitArgs& args, const std::shared_ptr<PeerState>& peer,
                                    IfUnmatched if_unmatched) override;
  bool has_incoming(const InitArgs& args, const PeerState& peer) override;
  Status free(Request* request) override;
  bool takes(std::uint16_t kind) const override {
    return kind <= static_cast<std::uint16_t>(record::Type::staging);
  }
  void on_record(const std::shared_ptr<PeerState>& peer, const control::Record& record) override;
  void on_down(PeerState&) override {
    const std::scoped_lock lock(mutex_);
    release_ended_locked();
  }
  void fail_posted(const MatchKey& key, const char* why) override;
  std::string_view fabric() const override { return model::kShmFabric; }
  void add_totals(RoundTotals* sent, RoundTotals* received) const override;
  PeerUse use_of(const PeerState& peer) const override {
    const std::scoped_lock lock(mutex_);
    return peer.use;
  }
  /// As NetworkTransport::refuse(), for a peer that uses shared memory.
  static std::optional<MatchKey> refuse(PeerState& peer, const control::Record& record);

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

  // Records, on the helper.
  void on_init(const std::shared_ptr<PeerState>& peer, const control::Record& record);
  void on_datatype(control::Peer& from, std::span<const std::byte> payload);
  void on_map(control::Peer& from, const control::Record& record);
  void on_move(control::Peer& from, const record::Move& move);
  void on_staging(control::Peer& from, const control::Record& record);
  void on_close(control::Peer& from, const record::Close& close);
  void on_fail(control::Peer& from, const record::Fail& fail);

  /// A channel's needs in shared memory.
  struct Plan {
    BlockShape shape;
    std::vector<std::uint32_t> boundaries;  ///< of the first round
  };
  static Result<Plan> plan_of(const InitArgs& args, const Policy& policy, Mode mode);
  Result<shm::Block> block_of(const BlockShape& shape);
  static bool can_attach(const PeerState& peer) {
    return peer.push_allowed || peer.peer->same_process();
  }
  Mode mode_for(const PeerState& peer, const InitArgs& args) const;
  void note_locked(PeerState& peer, Mode mode, const InitArgs& args, Kind kind);
  std::optional<shm::Mapped> mapped(const InitArgs& args) const;
  void send_map(PeerState& peer, std::uint64_t channel, const InitArgs& args);
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

  const Config& config_;
  const std::shared_ptr<const shm::Regions> regions_;
  ProgramSteps& steps_;
  shm::BlockPool pool_;

  mutable std::mutex mutex_;
  // guarded by mutex_
  std::uint64_t last_channel_ = 0;
  RoundTotals freed_sends_, freed_receives_;
  std::unordered_map<const Request*, std::shared_ptr<Request>> requests_;
  std::unordered_map<std::uint64_t, std::shared_ptr<SendChannel>> sends_;
  std::unordered_map<ChannelKey, std::shared_ptr<RecvChannel>, ChannelKey::Hash> receives_;
  std::unordered_map<std::uint64_t, Closing> closing_;
  Matching<RecvChannel, Incoming> matching_;
};

}  // namespace larklane::part
