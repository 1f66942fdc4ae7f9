#pragma once
// Input and output of a simulation.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "net/loop/costs.hpp"
#include "sim/copy_costs.hpp"

namespace larklane::sim {

/// The processor's part in a two-sided send.
struct TwoSidedCosts {
  std::uint64_t request_ps =
      0;  ///< the call and its request, down to the work request; under the lock
  std::uint64_t match_ps = 0;               ///< a message finds its receive
  std::uint64_t copy_byte_ps = 0;           ///< from and to eager buffers
  std::uint64_t zero_copy_from_bytes = 0;   ///< an eager send copies below
  std::uint64_t rendezvous_from_bytes = 0;  ///< the receiver reads from here on
};

/// Thread safety: immutable.
struct Scenario {
  std::uint32_t partitions = 1;
  std::uint64_t partition_bytes = 1;
  /// By round, the first partition of each group, ascending from 0: a group is one write into the
  /// receiver's memory. The last holds for all further rounds. @pre one at least
  std::vector<std::vector<std::uint32_t>> plans{{0}};
  /// From the groups of round 1 on, the planner of this policy chooses those of the next rounds.
  /// Empty: `plans` does.
  std::string policy;
  /// Policies with a deadline: until when after its first partition a group waits for the others; a
  /// thread that costs nothing looks for it. All rounds have the groups of round 1. @pre none
  /// larger than a word
  std::optional<std::uint64_t> deadline_ps;
  /// Set: the baseline, without groups. A send for each partition, eager or by rendezvous, under
  /// one lock.
  std::optional<TwoSidedCosts> two_sided;
  /// Set: no network. Threads copy the groups that they complete, between two processes of one
  /// host. Each is bound to a core, the receiver to the last one. No more threads than cores, no
  /// policy. `network` has no part in it, and of `processor` only loads and
  /// read-modify-writes of lines that are held.
  std::optional<CopyCosts> copying;
  /// Partitions are theirs in equal blocks. @pre 1 to `partitions`
  std::uint32_t threads = 1;
  /// By round and partition, from the round's begin on: until when a thread computes it.
  std::vector<std::vector<std::uint64_t>> ready_ps;
  loop::NetworkCosts network;
  loop::Costs processor;
  /// The receiver looks at completions when all is there, not as they come.
  bool is_receiver_late = false;
  std::uint64_t seed = 1;  ///< the order of simultaneous events
};

/// A round, on the clock that starts when the threads begin to compute; both sides' Start is over.
struct Round {
  std::uint64_t total_ps = 0;    ///< until the receiver has everything
  std::uint64_t exposed_ps = 0;  ///< from when the last partition is ready
  std::uint32_t transfers = 0;   ///< with partitions in them
};

struct Outcome {
  std::vector<Round> rounds;
  /// Nothing; or the error, and where every thread was: a byte that differs from the sent one, a
  /// deadlock.
  std::string failure;
};

/// Could it be run?
bool is_possible(const Scenario& scenario);

/// Run the scenario: virtual threads on the engine's own code, every byte that travels is checked
/// (the first kPayloadBytesMax of each partition exist). The same scenario gives the same outcome.
/// @errors kInvalidArgument: boundaries, threads or times that fit no channel
Result<Outcome> simulate(const Scenario& scenario);

inline constexpr std::uint64_t kPayloadBytesMax = 64;

/// First partition of each group, where each group is to have a deadline.
std::vector<std::uint32_t> timed_groups(std::uint32_t partitions);

/// From model::readiness(), to the nearest picosecond.
std::vector<std::vector<std::uint64_t>> ready_ps(const std::vector<std::vector<double>>& ready_ns);

}  // namespace larklane::sim
