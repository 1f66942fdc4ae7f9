#pragma once
// Planners: the adaptive part of a policy. A planner changes the groups of a channel between
// rounds, from the arrivals of sampled rounds.

#include <cstdint>
#include <functional>
#include <vector>

#include "model/runs.hpp"

namespace larklane::part {

/// One round as its sender recorded it; all times from the same zero.
struct SeenRound {
  std::vector<double> ready_ns;  ///< by cell: time of its last ready partition
  /// By cell: the thread that made it ready, where that thread also copies the groups that it
  /// completes. The times then exclude its earlier copies. Empty: a network moves the data.
  std::vector<std::uint32_t> threads;
  std::vector<model::SeenRun> runs;  ///< runs with a recorded end
  double end_ns = 0;                 ///< of the round
};

/// The channel of a planner.
struct PlannedChannel {
  std::uint32_t partitions = 0;
  std::uint64_t partition_bytes = 0;
  std::vector<std::uint32_t> base;  ///< first partition of each group in the first rounds
  std::uint64_t seed = 1;           ///< differs between channels
};

/// Marks and runs of a sampled round are recorded by RoundWatch, so a mark calls no planner.
/// Thread safety: single-owner: the thread that calls Start and completes.
class Planner {
 public:
  struct Turn {
    bool is_sampled = false;   ///< this round is to be recorded
    bool has_changed = false;  ///< the rounds after this one have the groups of groups()
    /// Starts until the planner's next call; nothing changes before it.
    std::uint64_t next_starts = 1;
  };
  virtual ~Planner() = default;
  /// In Start. @param starts  since the last call, this one included
  virtual Turn on_start(std::uint64_t starts) = 0;
  /// First partition of each group after this round.
  virtual std::vector<std::uint32_t> groups() const = 0;
  /// A sampled round is over. @return work for the spare thread; empty: none
  virtual std::function<void()> on_round_done(SeenRound round) = 0;
};

}  // namespace larklane::part
