#pragma once
// A transport sweep (Sweep3D) on simulated hosts: the pattern of Temucin et al., CLUSTER'23, figure
// 14, as their benchmark has it. Waves cross a plane of ranks from its corners, one after the
// other. Thread p of a rank waits for partition p of both neighbours that are nearer to the corner,
// computes, and has partition p ready for both that are farther away; before the next corner the
// threads of a rank join. SNAP's sweep has blocks: from each corner a rank computes several, each
// with messages of its own, and a thread may compute several partitions of a block in order.

#include <cstdint>

#include "base/status.hpp"
#include "sim/scenario.hpp"

namespace larklane::sim {

/// Thread safety: immutable.
struct Sweep {
  /// Each message between neighbours. Each thread has the same number of partitions; round r of
  /// `ready_ps` is drawn for a rank, a corner and a block by chance, and is the time beyond
  /// `compute_ps`. There are as many sweeps as rounds.
  /// @pre no receiver is late, no policy learns
  Scenario channel;
  std::uint32_t columns = 1, rows = 1;
  std::uint32_t corners = 4;     ///< 1 to 4
  std::uint32_t blocks = 1;      ///< from each corner
  std::uint64_t compute_ps = 0;  ///< of each partition
};

/// How often ranks compute one after the other before all is done, were communication free.
std::uint64_t steps(const Sweep& sweep);

/// A round is a sweep from all corners; `exposed_ps` is all of it but the computing of steps(). All
/// receives are started before it begins. A rank's messages to both neighbours share its wire; a
/// processor of its own takes arrivals.
/// @errors kInvalidArgument: a value that fits no channel or no plane
Result<Outcome> simulate(const Sweep& sweep);

}  // namespace larklane::sim
