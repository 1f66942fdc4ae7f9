#pragma once
// Policy `learned`: groups chosen from earlier rounds (docs/design/learned.md).
//
// The exposed time of a round runs from its last ready partition to its end. Ready times are
// visible under any plan, so they need no trial. Only the costs of transport partitions depend on
// the plan: a few rounds with other groups measure them. The learner begins with given groups, the
// base, and falls back to them.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "model/plan.hpp"
#include "model/runs.hpp"
#include "part/policy/plan_cells.hpp"
#include "part/policy/planner.hpp"

namespace larklane::part {

/// Ready times of the last sampled rounds. Thread safety: as a container.
struct SeenReadiness {
  std::vector<std::vector<double>> ready_ns;
  std::vector<std::vector<std::uint32_t>> threads;  ///< empty: a network

  void add(SeenRound& round, std::size_t most);
  void keep_last(std::size_t most);
  std::size_t count() const noexcept { return ready_ns.size(); }
  model::Workload workload(const model::LogGP& network, std::uint64_t cell_bytes) const {
    return {{.network = network}, cell_bytes, ready_ns, threads};
  }
};

/// The last few values of a repeated measurement. Thread safety: single-owner.
class Recent {
 public:
  /// @param most  at most 32
  explicit Recent(std::uint32_t most) noexcept : most_(most) {}
  void add(double value) noexcept { values_[count_++ % most_] = value; }
  void clear() noexcept { count_ = 0; }
  std::uint32_t count() const noexcept { return count_ < most_ ? count_ : most_; }
  struct Mean {
    double value, variance;  ///< of the mean: the square of its standard error
  };
  /// Each value counts for at most 5 medians. @pre count() != 0
  Mean mean() const;
  /// @pre count() != 0
  double median() const {
    return model::upper_median({values_.begin(), values_.begin() + count()});
  }
  /// @pre count() != 0
  double least() const { return *std::min_element(values_.begin(), values_.begin() + count()); }

 private:
  const std::uint32_t most_;
  std::array<double, 32> values_{};
  std::uint32_t count_ = 0;
};

/// Rounds, and the plan made from them. That takes milliseconds (128 cells: a tenth of a second),
/// so no thread of the program does it. Thread safety: run() once on any thread, is_done() is
/// thread-safe, the rest after is_done().
class Study {
 public:
  struct Question {
    std::uint64_t cell_bytes;
    SeenReadiness rounds;
    std::vector<std::vector<model::SeenRun>> runs;
    std::vector<std::uint32_t> base;  ///< other groups must expose less time than these
    /// Exposed time of the base, measured, if its groups are not made of cells. 0: the model
    /// computes it.
    double base_ns = 0;
    /// Groups in use: they stay unless equal ones would expose less time. Empty: none.
    std::vector<std::uint32_t> firsts;
  };
  struct Findings {
    std::optional<model::LogGP> network;  ///< nullopt: the runs do not determine it
    std::vector<std::uint32_t> firsts;    ///< first cell of each group
    double usual_ns = 0, spread_ns = 0;   ///< their exposed time, and its mean deviation
    double base_ns = 0;                   ///< exposed time of the base
    bool has_searched = false;            ///< for any groups: a tenth of a second for 128 cells
  };
  explicit Study(Question question) : question_(std::move(question)) {}
  void run();
  /// acquire: pairs with run()'s release.
  bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  const Findings& findings() const noexcept { return findings_; }

 private:
  std::vector<std::uint32_t> best(const model::Workload& workload);

  const Question question_;
  Findings findings_;
  std::atomic<bool> done_{false};
};

/// The groups of one channel's rounds. Thread safety: single-owner: the thread that calls Start and
/// completes.
/// Invariants:
/// 1. The learner takes a plan only if it expects less exposed time than the base's. If the plan
/// proves worse, the learner returns to the base for a time that doubles.
/// 2. It keeps measuring both: the base in single rounds, the more rarely the more time the base
/// exposes. Those rounds are random, so that a periodic program is not always measured at one point
/// of its period.
/// 3. Between the trials and the first plan it uses the trial with the least exposed time, if that
/// was far less than the base's.
/// 4. After each retreat it forgets all costs, and measures them in new trials.
class Learner {
 public:
  /// @param base  first cell of each group, ascending from 0: the groups of the first rounds
  /// @param seed  differs between channels, so that they do not all act in the same round
  Learner(std::uint32_t partitions, std::uint64_t partition_bytes, std::vector<std::uint32_t> base,
          std::uint64_t seed = 1);

  struct Turn {
    bool is_sampled;   ///< this round is to be recorded
    bool has_changed;  ///< the rounds after this one have the groups of firsts()
  };
  /// In Start. @param starts  since the last call, this one included: at most next_turn()
  Turn turn(std::uint64_t starts = 1);
  /// After turn(): Starts until its next call. Until then no round is sampled and the groups stay.
  std::uint64_t next_turn() const;
  /// First cell of each group.
  const std::vector<std::uint32_t>& firsts() const noexcept { return next_; }
  /// Does firsts() return the base?
  bool is_at_base() const noexcept { return next_ == base_; }
  /// After a sampled round. @return a study for another thread to run; null: none
  std::shared_ptr<Study> see(SeenRound round);

 private:
  using Firsts = std::vector<std::uint32_t>;

  const Firsts& wanted_next();
  const Firsts& next_trial();
  bool is_dear();
  void adopt(const Study::Findings& findings);
  void measure(double exposed_ns);
  void measure_trial(double exposed_ns);
  void use(const Firsts& plan, double base_ns, double plan_ns);
  void judge();
  void give_up();
  void rest();
  void explore();
  void space_controls(double base_ns, double plan_ns);
  bool is_control() const { return plan_ != base_ && current_ == base_; }
  int against_base() const;
  bool has_drifted();
  std::uint64_t next_gap();
  std::shared_ptr<Study> study();

  const std::uint32_t cells_;
  const std::uint64_t cell_bytes_;
  const bool has_whole_cells_;  ///< each cell is one partition
  const std::uint64_t seed_;
  const Firsts base_;

  std::uint64_t round_ = 0;
  std::uint64_t next_sample_ = 2;  ///< round; the first one matches the receive and touches memory
  Firsts current_, next_;          ///< groups of this round, and of those after it
  bool shifts_ = false;            ///< current_ and next_ differ

  // Trials, which measure the costs of other groups.
  bool is_exploring_ = true;
  Firsts trial_;
  std::uint64_t first_trial_ = 0;  ///< round
  std::uint32_t explored_;         ///< groups of the last trial
  int dear_ = 0;                   ///< consecutive trials that cost too much
  Recent trial_ns_{1};             ///< exposed time of the last one
  static constexpr double kNoTrial = std::numeric_limits<double>::infinity();
  Firsts best_trial_;  ///< the trial with the least exposed time
  double best_trial_ns_ = kNoTrial;
  bool is_provisional_ = false;  ///< plan_ is best_trial_, and no study has confirmed it

  SeenReadiness rounds_;
  std::map<std::size_t, std::vector<std::vector<model::SeenRun>>> runs_;  ///< by number of groups
  std::shared_ptr<Study> study_;
  bool is_due_ = true;        ///< a study, as soon as there are enough rounds
  bool is_anew_ = true;       ///< it disregards the groups in use
  std::uint32_t seen_ = 0;    ///< sampled rounds since the last study was requested
  std::uint32_t next_study_;  ///< sampled rounds before a study that only looks for better groups

  Firsts plan_;  ///< in use, except for trials and controls
  std::optional<model::LogGP> network_;
  double usual_ns_ = 0, spread_ns_ = 0;               ///< expected exposed time when it was made
  double drift_ns_ = 0;                               ///< sum of the excess since then
  Recent base_ns_{4}, plan_ns_{32};                   ///< measured exposed times
  std::uint64_t since_adoption_ = 0;                  ///< sampled rounds
  std::uint64_t next_control_ = 0, control_gap_ = 0;  ///< rounds
  std::uint32_t rest_ = 0;                            ///< sampled rounds left at the base
  std::uint32_t next_rest_;
  bool is_barred_ = false;  ///< no plan until trials have measured costs anew
};

}  // namespace larklane::part
