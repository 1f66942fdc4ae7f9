#pragma once
// The interface between the engine and a transport: shared memory, or a network.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "control/plane/plane.hpp"
#include "part/counters.hpp"
#include "part/matching.hpp"
#include "part/peer_state.hpp"
#include "part/policy/planning.hpp"
#include "part/request.hpp"

namespace larklane::part {

/// A receive that no INIT matches yet: it waits for one, or it is not made.
enum class IfUnmatched : std::uint8_t { wait, none };

/// Makes the channels with its peers, matches sends with receives, and serves their records. Both
/// processes of a pair choose the same transport.
// Thread safety: thread-safe. Each transport has a mutex of its own.
// Lock order: EngineImpl::mutex_ > a transport's mutex > a lane or a StartGate > a peer's mutex.
// Invariants:
// 1. A transport takes neither the engine's mutex nor another transport's.
// 2. PeerState::down is set before on_down(), without a lock. A request that was made meanwhile
// polls it; on_down() then releases the memory that was freed meanwhile.
// 3. The engine selects a receive's peer before the transport's mutex is taken. So the transport
// decides under its mutex whether an INIT is left: see IfUnmatched::none.
class Transport {
 public:
  /// Figures and texts that all transports of an engine share.
  struct Report {
    Counters& counters;
    std::string policy{};    ///< option `policy`
    bool logs_info = false;  ///< does log_info() write? Its text for each request is expensive
  };
  virtual ~Transport() = default;

  /// `peer` gets this transport, and is not known to any other thread yet.
  virtual void on_new_peer(PeerState&) {}
  /// @param plans  the policy, and the plane for its planners
  virtual Result<SendRequest*> make_send(const InitArgs& args,
                                         const std::shared_ptr<PeerState>& peer,
                                         const PlanSource& plans) = 0;
  /// @return null: no INIT of the peer matches, and `if_unmatched` is none
  /// @errors kPeerDown: no INIT of the peer matches, and no more INITs come
  virtual Result<RecvRequest*> make_receive(const InitArgs& args,
                                            const std::shared_ptr<PeerState>& peer,
                                            IfUnmatched if_unmatched) = 0;
  /// Has `peer` sent an INIT that the next receive with these arguments gets? If so,
  /// make_receive() finds it, unless another thread is first.
  virtual bool has_incoming(const InitArgs& args, const PeerState& peer) = 0;
  /// @errors kInvalidArgument: no request of this transport; kAlreadyActive
  virtual Status free(Request* request) = 0;

  // On the helper.
  /// Are records of this kind the transport's own?
  virtual bool takes(std::uint16_t kind) const = 0;
  virtual void on_record(const std::shared_ptr<PeerState>& peer, const control::Record& record) = 0;
  /// `peer` is known to be down.
  virtual void on_down(PeerState& peer) = 0;
  /// The send that `key`'s next receive would match can't be made: that receive fails.
  virtual void fail_posted(const MatchKey& key, const char* why) = 0;

  /// The plane's helper serves the transport from now on, until end().
  virtual void begin(control::Plane&) {}
  virtual void end(control::Plane&) {}
  /// Every request has been freed. @return nothing is in flight
  virtual bool is_settled() { return true; }
  /// @return number of completions
  virtual std::uint32_t progress() { return 0; }
  /// Waits until nothing is in flight on any of them, at most 2 s, and sends CLOSE.
  static void settle(std::span<Transport* const> transports);

  /// Its name in tuning files.
  virtual std::string_view fabric() const = 0;
  virtual void add_totals(RoundTotals* sent, RoundTotals* received) const = 0;
  virtual PeerUse use_of(const PeerState& peer) const = 0;

 protected:
  explicit Transport(Report report) noexcept
      : counters_(report.counters), report_(std::move(report)) {}
  /// A request has been made. With the transport's mutex held. @param how  for users
  void note_locked(PeerState& peer, const InitArgs& args, Kind kind, const std::string& how) const;
  const std::string& policy_of(const InitArgs& args) const noexcept {
    return args.policy.empty() ? report_.policy : args.policy;
  }

  Counters& counters_;

 private:
  const Report report_;
};

}  // namespace larklane::part
