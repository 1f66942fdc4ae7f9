#pragma once
// Planners: the part of a policy that reacts. A planner changes the groups of a channel between
// rounds, from the arrivals of rounds that it has asked to see.

#include <cstdint>
#include <functional>
#include <vector>

#include "model/runs.hpp"

namespace larklane::part {

/// One round as its sender saw it; all times from the same zero.
struct SeenRound {
  std::vector<double> ready_ns;  ///< of each cell, when its last partition was
  /// Of each cell, the thread that made it ready, where that thread also copies what it completes;
  /// the times are then without what it had copied before. Empty: a network moves the data.
  std::vector<std::uint32_t> threads;
  std::vector<model::SeenRun> runs;  ///< those whose end the sender has seen
  double end_ns = 0;                 ///< of the round
};

/// The channel that a planner is for.
struct PlannedChannel {
  std::uint32_t partitions = 0;
  std::uint64_t partition_bytes = 0;
  std::vector<std::uint32_t> base;  ///< first partition of each group in the first rounds
  std::uint64_t seed = 1;           ///< another for each channel
};

/// Marks and runs of a sampled round are recorded by RoundWatch, so a mark calls no planner.
/// Thread safety: single-owner: the thread that calls Start and completes.
class Planner {
 public:
  struct Turn {
    bool is_sampled = false;   ///< this round is to be seen
    bool has_changed = false;  ///< the rounds after this one have the groups of groups()
    /// So many Starts later the planner is to be asked again; until then nothing changes.
    std::uint64_t next_starts = 1;
  };
  virtual ~Planner() = default;
  /// In Start. @param starts  since the last call, this one included
  virtual Turn on_start(std::uint64_t starts) = 0;
  /// First partition of each group after this round.
  virtual std::vector<std::uint32_t> groups() const = 0;
  /// A sampled round is over. @return work for a thread of no one channel; empty: nothing to do
  virtual std::function<void()> on_round_done(SeenRound round) = 0;
};

}  // namespace larklane::part
