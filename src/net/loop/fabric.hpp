#pragma once
// A network inside one process, for tests of the layers above. It keeps no order at all, takes as
// long as it likes, and reports everything that a real network would punish. The same seed and the
// same calls give the same run.
//
// The hub holds posted operations. They happen part by part when it is turned: the pieces of a
// transfer in any order, then its immediate and its completion, in either order. The hub is
// turned by each poll of any endpoint, or, with turns_per_poll 0, by turn() and settle() alone: a
// test that explores schedules, or a thread that is the network.
//
// Under the thread sanitizer the network orders the same accesses as a real one: a post before its
// effects, these before an immediate, a completion, or a load of a whole word that a small write
// stored.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/provider.hpp"

namespace larklane::loop {

class Hub;

/// Violations that a real network would punish.
enum class Offence : std::uint8_t {
  outside_memory,      ///< bytes that no registered memory has, at either side
  memory_busy,         ///< memory deregistered with a pending operation
  foreign_memory,      ///< memory of another fabric
  receiver_not_ready,  ///< more immediates than were reserved
  released_too_many,   ///< more immediates than were reserved
  operation_busy,      ///< posted again before it was complete
  operation_touched,   ///< its provider_space was written meanwhile
  no_callback,         ///< an operation without a callback
  link_busy,           ///< destroyed with a pending operation
  endpoint_busy,       ///< destroyed before its links
  fabric_busy,         ///< destroyed before its endpoints or memory
  not_connected,       ///< a post before both sides had connected
  crossed,             ///< both sides' first operations, where one has to come first
  too_long,            ///< longer than the limits allow
  completed_twice,     ///< an operation; a fault of this network itself
  not_serial,          ///< two threads at once, or a poll within a callback
};
const char* offence_name(Offence offence) noexcept;

struct Violation {
  Offence offence;
  std::string detail;
};

/// Thread safety: thread-safe.
/// Invariants:
/// 1. Each operation that is posted completes once, and only by a poll of its own endpoint.
/// 2. An immediate is delivered once, after all of its bytes are there.
/// 3. No violation is silent: one that no test has taken ends the process.
class Fabric final : public net::Fabric {
 public:
  struct Options {
    std::uint64_t seed = 1;
    net::Limits limits{1u << 20, 1u << 20, 64, 4096, false, "loop"};
    std::uint32_t turns_per_poll = 4;  ///< parts that happen in one poll; 0: in turn() alone
    std::uint32_t queue_depth = 64;    ///< of a link; operations beyond it have to be posted again
    std::uint32_t pieces_max = 4;      ///< that a transfer is cut into
    std::uint32_t delayed_percent = 25;  ///< of the parts are put off ...
    std::uint32_t delay_turns_max = 64;  ///< ... for up to as many turns
    std::uint32_t done_percent = 0;  ///< of the small writes are complete when their post returns
    bool aborts = false;             ///< at the first violation, where it happens
    /// Instead of the seed: any number below `bound`. For tests that enumerate schedules.
    std::function<std::uint64_t(std::uint64_t bound)> choose{};
  };

  explicit Fabric(Options options);
  ~Fabric() override;

  const net::Limits& limits() const noexcept override;
  Result<std::unique_ptr<net::Memory>> register_memory(void* start, std::uint64_t bytes) override;
  Result<std::unique_ptr<net::Endpoint>> open_endpoint(net::Receiver& receiver) override;

  /// The same network as another process has it, which may use this one's memory as a peer only.
  std::unique_ptr<net::Fabric> for_process();

  /// Let up to `most` parts happen, as far as none is put off. @return how many did. Where progress
  /// is manual, parts come as far as the endpoint that has to poll for them.
  std::uint64_t turn(std::uint64_t most);
  /// Let all happen that can.
  std::uint64_t settle();
  /// Operations that have not completed, and immediates that have not been heard.
  std::size_t under_way_count();
  std::size_t registrations_count();

  /// The process of the endpoint that was opened as the `number`-th (from 0) dies, as far as peers
  /// can tell: pending operations to and from it complete with kPeerDown, and its poll fails.
  void kill_endpoint(std::uint32_t number);
  /// The same of all endpoints of a process: of the n-th for_process(), from 1.
  void kill_process(std::uint32_t process);

  std::vector<Violation> take_violations();

 private:
  std::shared_ptr<Hub> hub_;
  std::unique_ptr<net::Fabric> own_;
};

}  // namespace larklane::loop
