#pragma once
// The interface of the partitioned engine of one process, which src/mpi calls. EngineImpl chooses
// the transport of a peer (transport_for()). Ids of MPI's rules: docs/user/conformance.md.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/config.hpp"
#include "base/status.hpp"
#include "control/plane/plane.hpp"
#include "net/provider.hpp"
#include "part/request.hpp"
#include "shm/region.hpp"

namespace larklane::part {

/// The figures of the whole process that `larklane run --summary` prints.
struct Summary {
  struct PeerLine {
    control::Address address;
    std::string provider;  ///< "shm slots", "shm attach", "shm slots (attach refused)", "self"
    std::string policy;    ///< of channels without slots; empty if all have slots
    std::uint64_t channels;
  };
  std::uint64_t sends = 0, receives = 0;              ///< requests made
  std::uint64_t send_rounds = 0, receive_rounds = 0;  ///< completed
  std::uint64_t bytes_sent = 0, bytes_received = 0;
  /// Send partitions that this process has moved; slots are emptied by the receiver.
  std::uint64_t moved_by_sender = 0, moved_by_receiver = 0, moved_by_helper = 0;
  std::uint64_t bytes_moved = 0;
  std::uint64_t early_bytes = 0;  ///< bytes moved before all partitions of their round were ready
  control::PlaneCounters control{};
  std::vector<PeerLine> peers;
  std::vector<std::string> warnings;
};

/// An engine's means in a world on several hosts.
struct OtherHosts {
  static constexpr std::size_t kSharedMemory = ~std::size_t{0};

  std::optional<control::Remote> remote;  ///< nullopt: it has no peers on other hosts
  std::vector<std::unique_ptr<net::Fabric>> fabrics;
  /// For peers that do not use the first fabric: its index, or kSharedMemory. Their engines hold
  /// the same for this process.
  std::unordered_map<control::Address, std::size_t> fabric_of;
  bool is_for_this_host = false;  ///< peers on this host use a fabric, too
};

/// Thread safety: thread-safe.
class Engine {
 public:
  /// Starts the helper thread.
  /// @param regions  the program's mapped memory, if it has any: buffers in it are copied without
  /// attach
  /// @param fabric   reaches all peers; null: option `provider` decides
  /// @param others   for a world on several hosts: replaces `fabric` and the option
  /// @param beside   another user of the plane: gets records of kinds from kKindsEnd on, and the
  /// end of each peer. Outlives the engine
  static Result<std::unique_ptr<Engine>> create(
      std::vector<control::Listener> own, Config config,
      std::shared_ptr<const shm::Regions> regions = nullptr,
      std::unique_ptr<net::Fabric> fabric = nullptr,
      std::optional<OtherHosts> others = std::nullopt, control::Handler* beside = nullptr);
  /// The first kind of record that is not the engine's.
  static constexpr std::uint16_t kKindsEnd = 32;
  virtual ~Engine() = default;  ///< every request has been freed

  /// Can this process serve `peer` (does it run under Larklane on this host, as this user)? Both
  /// sides of a pair get the same answer. A peer on another host counts as reachable: its address
  /// proves it.
  virtual Status reachable(const control::Address& peer) = 0;
  /// Local: returns independently of the peer (rule I1). Pairs match in the order of these calls
  /// (rule I2).
  virtual Result<SendRequest*> send_init(const InitArgs& args) = 0;
  virtual Result<RecvRequest*> recv_init(const InitArgs& args) = 0;
  /// Frees an inactive request, matched or not (rule C5). @errors kAlreadyActive
  virtual Status free(Request* request) = 0;

  virtual Summary summary() const = 0;
  /// For the other user of its connections; lives as long as the engine.
  virtual control::Plane& plane() = 0;
  /// For a thread that waits in vain, periodically: control::Plane::look_at_descriptors().
  virtual void look_at_descriptors() = 0;
  /// For every thread of the program that waits or tests, on any request. Carries out the steps
  /// that only such a thread can (ADR 0028).
  virtual void help() = 0;
};

}  // namespace larklane::part
