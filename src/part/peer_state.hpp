#pragma once
// The engine's state of a peer.

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "control/plane/plane.hpp"
#include "shm/segment.hpp"

namespace larklane::part {

class ProgramSteps;
class Transport;

/// The channels with one peer, for the summary.
struct PeerUse {
  std::uint64_t channels = 0;
  std::string provider, policy;  ///< as in Summary::PeerLine
};

/// The engine's state of one process. Thread safety: `down` and `thread` are thread-safe. The
/// pointers, `push_allowed` and `pull_allowed` never change once the state is in the engine's map.
/// The rest is guarded by the transport's mutex.
struct PeerState {
  control::Peer* peer = nullptr;
  Transport* transport = nullptr;  ///< of all channels with the peer; outlives this
  /// Thread id that attach copies use. relaxed: each value that it ever had works, or the copy
  /// fails; an ended thread is none of the process's threads.
  std::atomic<pid_t> thread{0};
  bool push_allowed = false;  ///< attach, from here into its memory
  bool pull_allowed = false;
  std::atomic<bool> down{false};
  ProgramSteps* steps = nullptr;  ///< the engine's, which outlives it
  std::set<std::uint32_t> segments_sent;
  std::unordered_map<std::uint32_t, std::shared_ptr<shm::Segment>> segments;  ///< its shared ones
  std::unordered_map<std::uint32_t, UniqueFd> unmapped;  ///< segments for which memory was refused
  PeerUse use;

  /// The reason why it is down, for users.
  std::string why_down() const {
    std::string reason = peer->down_reason();
    return reason.empty() ? "its process has ended" : reason;
  }
};

}  // namespace larklane::part
