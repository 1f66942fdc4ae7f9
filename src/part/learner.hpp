#pragma once
// Policy `learned`: groups from what earlier rounds showed (docs/learned.md). When partitions
// become ready is seen whatever the plan, so nothing has to be tried out for it; only what
// transport partitions cost depends on the plan, and a few rounds with other groups tell that.
// Bulk, one group of all, is where it begins and what it falls back to.

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/plan.hpp"
#include "model/runs.hpp"

namespace larklane::part {

/// Neighbouring partitions that are planned as one: at most 128 cells, as equal as may be. Thread
/// safety: immutable.
class Cells {
 public:
  static constexpr std::uint32_t kMax = 128;
  explicit Cells(std::uint32_t partitions) noexcept;
  std::uint32_t count() const noexcept { return count_; }
  std::uint32_t of(std::uint32_t partition) const noexcept {
    if (count_ == partitions_) return partition;
    return static_cast<std::uint32_t>(((partition + std::uint64_t{1}) * count_ - 1) / partitions_);
  }
  /// First partition of each group, from first cells.
  std::vector<std::uint32_t> boundaries(std::vector<std::uint32_t> firsts) const;

 private:
  std::uint32_t partitions_, count_;
};

/// One round as its sender saw it; all times from the same zero.
struct SeenRound {
  std::vector<double> ready_ns;      ///< of each cell, when its last partition was
  std::vector<model::SeenRun> runs;  ///< those whose end the sender has seen
  double end_ns = 0;                 ///< of the round
};

/// The last few values of something that is measured again and again. Thread safety: single-owner.
class Recent {
 public:
  void add(double value) noexcept { values_[count_++ % kMost] = value; }
  void clear() noexcept { count_ = 0; }
  std::uint32_t count() const noexcept { return count_ < kMost ? count_ : kMost; }
  double median() const;
  /// Of the median, for noise with a bell's shape: the square of its standard error.
  double variance() const;

 private:
  static constexpr std::uint32_t kMost = 8;
  std::array<double, kMost> values_{};
  std::uint32_t count_ = 0;
};

/// Rounds to make a plan of. It takes milliseconds (128 cells: a tenth of a second), so it is not
/// for a thread of the program. Thread safety: run() once on any thread, is_done() thread-safe, the
/// rest after is_done().
class Study {
 public:
  struct Findings {
    std::optional<model::LogGP> network;  ///< nothing: its runs did not tell
    std::vector<std::uint32_t> firsts;    ///< first cell of each group
  };
  Study(std::uint64_t cell_bytes, std::vector<std::vector<double>> rounds,
        std::vector<std::vector<model::SeenRun>> runs);
  void run();
  /// acquire: pairs with run()'s release.
  bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  const Findings& findings() const noexcept { return findings_; }

 private:
  const std::uint64_t cell_bytes_;
  const std::vector<std::vector<double>> rounds_;
  const std::vector<std::vector<model::SeenRun>> runs_;
  Findings findings_;
  std::atomic<bool> done_{false};
};

/// The groups of one channel's rounds. Thread safety: single-owner: the thread that calls Start and
/// completes.
/// Invariants:
/// 1. A plan is only taken if it is expected to leave less than bulk does; it is given up for bulk
/// if it turns out not to be worth it, for a time that doubles.
/// 2. Bulk leaves the same whatever the readiness, so what was measured of it stays true.
class Learner {
 public:
  Learner(std::uint32_t partitions, std::uint64_t partition_bytes);

  struct Turn {
    bool is_sampled;   ///< this round is to be seen
    bool has_changed;  ///< the rounds after this one have the groups of firsts()
  };
  /// In every Start.
  Turn turn();
  /// First cell of each group.
  const std::vector<std::uint32_t>& firsts() const noexcept { return next_; }
  /// After a round that was sampled. @return to be run elsewhere; null: nothing to do
  std::shared_ptr<Study> see(SeenRound round);

 private:
  void want(std::vector<std::uint32_t> firsts);
  void try_costs_out();
  void adopt(const Study::Findings& findings);
  void judge();
  bool has_lost_to_bulk() const;
  bool has_drifted();
  bool is_better_known() const;
  model::Workload workload(std::span<const std::vector<double>> rounds) const;
  std::vector<std::vector<model::SeenRun>> runs() const;

  const std::uint32_t cells_;
  const std::uint64_t cell_bytes_;
  const std::vector<std::uint32_t> bulk_{0};

  std::uint64_t round_ = 0, next_sample_ = 0;
  /// Groups of this round, of those after it, and what these are to be from the next Start on.
  std::vector<std::uint32_t> current_, next_, wanted_;
  bool shifts_ = false;       ///< current_ and next_ differ
  bool is_exploring_ = true;  ///< rounds with other groups tell what they cost
  std::uint32_t explored_ = 1;
  int dear_ = 0;        ///< trials in a row that cost too much
  bool is_due_ = true;  ///< a study, as soon as there are rounds enough
  std::shared_ptr<Study> study_;

  std::vector<std::vector<double>> rounds_;  ///< readiness, the last ones that were seen
  std::map<std::size_t, std::vector<std::vector<model::SeenRun>>> runs_;  ///< by number of groups
  std::optional<model::LogGP> network_;
  Recent bulk_exposed_ns_, exposed_ns_;  ///< measured
  std::uint32_t seen_ = 0;               ///< rounds, since the last study was begun
  std::uint64_t seen_ever_ = 0;
  double usual_ns_ = 0, spread_ns_ = 0;  ///< what the plan was to leave, when it was made
  double drift_ns_ = 0;                  ///< how much more it has been since, summed
  std::uint32_t retreat_ = 0;            ///< rounds still to be seen in bulk
  std::uint32_t next_retreat_ = 16;
};

}  // namespace larklane::part
