#pragma once
// Policy `learned`: groups from what earlier rounds showed (docs/design/learned.md). When
// partitions become ready is seen whatever the plan, so nothing has to be tried out for it; only
// what transport partitions cost depends on the plan, and a few rounds with other groups tell that.
// It begins with given groups, the base, and falls back to them.

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

/// Readiness of the last rounds that were seen. Thread safety: as a container.
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

/// The last few values of something that is measured again and again. Thread safety: single-owner.
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
  /// Of values of which none counts for more than 5 medians. @pre count() != 0
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

/// Rounds to make a plan of. It takes milliseconds (128 cells: a tenth of a second), so it is not
/// for a thread of the program. Thread safety: run() once on any thread, is_done() thread-safe, the
/// rest after is_done().
class Study {
 public:
  struct Question {
    std::uint64_t cell_bytes;
    SeenReadiness rounds;
    std::vector<std::vector<model::SeenRun>> runs;
    std::vector<std::uint32_t> base;  ///< what any others have to be worth more than
    /// What the base has left, where it has other groups than the cells say. 0: ask the model.
    double base_ns = 0;
    /// Groups that are in use: unless equal ones would leave less, they stay. Empty: none.
    std::vector<std::uint32_t> firsts;
  };
  struct Findings {
    std::optional<model::LogGP> network;  ///< nothing: its runs did not tell
    std::vector<std::uint32_t> firsts;    ///< first cell of each group
    double usual_ns = 0, spread_ns = 0;   ///< what they leave, and the mean deviation
    double base_ns = 0;                   ///< what the base leaves
    bool has_searched = false;            ///< for any groups: a tenth of a second of 128 cells
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
/// 1. A plan is only taken if it is expected to leave less than the base does; it is given up for
/// the base if it turns out not to be worth it, for a time that doubles.
/// 2. Both are measured again and again: the base in single rounds, the more seldom the more it
/// leaves.
/// Those rounds come by chance, lest a program with a period is always measured at one point of it.
/// 3. Between its trials and its first plan it uses the trial that left least, if that was far less
/// than the base.
/// 4. What costs were once is forgotten after each retreat: they are tried out anew.
class Learner {
 public:
  /// @param base  first cell of each group, ascending from 0: the groups of the first rounds
  /// @param seed  lest channels of one program all do the same in the same round
  Learner(std::uint32_t partitions, std::uint64_t partition_bytes, std::vector<std::uint32_t> base,
          std::uint64_t seed = 1);

  struct Turn {
    bool is_sampled;   ///< this round is to be seen
    bool has_changed;  ///< the rounds after this one have the groups of firsts()
  };
  /// In Start. @param starts  since the last call, this one included: at most next_turn()
  Turn turn(std::uint64_t starts = 1);
  /// After turn(): so many Starts later it is to be called again. Until then rounds are not sampled
  /// and the groups stay.
  std::uint64_t next_turn() const;
  /// First cell of each group.
  const std::vector<std::uint32_t>& firsts() const noexcept { return next_; }
  /// Are these the base?
  bool is_at_base() const noexcept { return next_ == base_; }
  /// After a round that was sampled. @return to be run elsewhere; null: nothing to do
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
  const bool has_whole_cells_;  ///< a cell is a partition
  const std::uint64_t seed_;
  const Firsts base_;

  std::uint64_t round_ = 0;
  std::uint64_t next_sample_ = 2;  ///< round; the first finds the receiver and touches memory
  Firsts current_, next_;          ///< groups of this round, and of those after it
  bool shifts_ = false;            ///< they differ

  // Trying out what other groups cost.
  bool is_exploring_ = true;
  Firsts trial_;
  std::uint64_t first_trial_ = 0;  ///< round
  std::uint32_t explored_;         ///< groups of the last trial
  int dear_ = 0;                   ///< trials in a row that cost too much
  Recent trial_ns_{1};             ///< what the last one left
  static constexpr double kNoTrial = std::numeric_limits<double>::infinity();
  Firsts best_trial_;  ///< the one that left least
  double best_trial_ns_ = kNoTrial;
  bool is_provisional_ = false;  ///< it is in use, and no study has said so

  SeenReadiness rounds_;
  std::map<std::size_t, std::vector<std::vector<model::SeenRun>>> runs_;  ///< by number of groups
  std::shared_ptr<Study> study_;
  bool is_due_ = true;        ///< a study, as soon as there are rounds enough
  bool is_anew_ = true;       ///< whatever the groups in use
  std::uint32_t seen_ = 0;    ///< rounds, since the last study was asked for
  std::uint32_t next_study_;  ///< so many, if it is only to see whether there is something better

  Firsts plan_;  ///< what is in use but for trials and controls
  std::optional<model::LogGP> network_;
  double usual_ns_ = 0, spread_ns_ = 0;               ///< what it was to leave, when it was made
  double drift_ns_ = 0;                               ///< how much more it has been since, summed
  Recent base_ns_{4}, plan_ns_{32};                   ///< what they left, measured
  std::uint64_t since_adoption_ = 0;                  ///< rounds seen
  std::uint64_t next_control_ = 0, control_gap_ = 0;  ///< rounds
  std::uint32_t rest_ = 0;                            ///< rounds still to be seen at the base
  std::uint32_t next_rest_;
  bool is_barred_ = false;  ///< no plan until costs have been tried out anew
};

}  // namespace larklane::part
