#include "part/policy/learned/learner.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/splitmix.hpp"

namespace larklane::part {
namespace {

/// Rounds of the base before the trials: all but the first are sampled, and measure its exposed
/// time.
constexpr std::uint64_t kBaseRounds = 3;
/// 8 rounds separate recurring delays from chance (docs/design/model.md).
constexpr std::size_t kRoundsMin = 8, kRoundsMost = 12;
/// Rounds kept for each number of groups.
constexpr std::size_t kRunsMost = 4;
/// Rounds after a change that are known at its detection.
constexpr std::size_t kRoundsAfterChange = 4;
/// In the end one of so many rounds is sampled, on average. At first all are, and all of each new
/// plan. At random, so that a periodic pattern is not always sampled at the same point.
constexpr std::uint64_t kGapMost = 16;
/// Largest shares of the base's exposed time at which a plan is worth its use. kWorth: as measured.
/// kHoped: a new plan by the model, which may be wrong by more.
constexpr double kWorth = 0.97, kHoped = 0.99;
constexpr double kSpreadLeast = 0.05, kSpreadLeast_ns = 100;
/// Drift that shows a change, in mean deviations; one round counts for at most kOneDriftMost of
/// them.
constexpr double kDriftMost = 12, kOneDriftMost = 4;
/// A plan that drifts within so many rounds was bad.
constexpr std::uint64_t kSoon = 16;
/// Two means differ if so many standard errors lie between them.
constexpr double kTold = 2;
/// Sampled rounds before a search for better groups; doubled after each search in vain.
constexpr std::uint32_t kStudyLeast = 8, kStudyMost = 128;
/// Sampled rounds at the base before new trials.
constexpr std::uint32_t kRestLeast = 32, kRestMost = 1024;
/// Controls, rounds of the base while a plan is in use, are so rare that they add 1 % to the
/// exposed time.
constexpr double kControlShare = 100, kControlLeast = 16, kControlMost = 100'000;
/// A trial is dear if it exposes kTrialMost times as much time as the base in two consecutive
/// trials, since one alone may be chance; or kTrialDear times as much in one. No trial further from
/// the base follows then: it would expose up to twice as much. (With more than 128 partitions the
/// first trial may expose more, since the base has other groups than the cells.)
constexpr double kTrialMost = 1.1, kTrialDear = 3;
constexpr int kDearMost = 2;
/// A trial is one round, and may be lucky: it must expose less than this share of the least of the
/// base's recent times. A program's first rounds are slow with any groups.
constexpr double kTried = 0.9;

template <class T>
void keep_last(std::vector<T>& all, std::size_t most) {
  if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(most));
}

}  // namespace

Recent::Mean Recent::mean() const {
  constexpr double kOutlier = 5;
  const std::vector<double> values(values_.begin(), values_.begin() + count());
  const double most = kOutlier * median();
  double sum = 0, squares = 0;
  for (const double each : values) {
    const double value = std::min(each, most);
    sum += value;
    squares += value * value;
  }
  const double n = count(), mean = sum / n;
  return {mean, std::max(0.0, squares / n - mean * mean) / n};
}

void SeenReadiness::add(SeenRound& round, std::size_t most) {
  ready_ns.push_back(std::move(round.ready_ns));
  if (!round.threads.empty()) threads.push_back(std::move(round.threads));
  keep_last(most);
}

void SeenReadiness::keep_last(std::size_t most) {
  part::keep_last(ready_ns, most);
  part::keep_last(threads, most);
}

void Study::run() {
  const Question& asked = question_;
  findings_.network = model::fit_runs(asked.runs);
  findings_.firsts = asked.base;
  if (findings_.network) {
    const model::Workload workload = asked.rounds.workload(*findings_.network, asked.cell_bytes);
    findings_.base_ns = asked.base_ns > 0 ? asked.base_ns : model::exposed_ns(workload, asked.base);
    std::vector<std::uint32_t> firsts = best(workload);
    const double share = firsts == asked.firsts ? 1 : kHoped;  // groups in use stay
    if (model::exposed_ns(workload, firsts) < share * findings_.base_ns)
      findings_.firsts = std::move(firsts);
    const auto rounds = static_cast<double>(asked.rounds.count());
    std::vector<double> left_ns;
    for (std::size_t i = 0; i < asked.rounds.count(); ++i)
      left_ns.push_back(model::exposed_ns(workload.round(i), findings_.firsts));
    for (const double left : left_ns) findings_.usual_ns += left / rounds;
    for (const double left : left_ns)
      findings_.spread_ns += std::abs(left - findings_.usual_ns) / rounds;
  }
  // release: pairs with is_done().
  done_.store(true, std::memory_order_release);
}

std::vector<std::uint32_t> Study::best(const model::Workload& workload) {
  const std::vector<std::uint32_t>& used = question_.firsts;
  if (!used.empty() &&
      model::best_equal_plan(workload).exposed_ns >= kWorth * model::exposed_ns(workload, used))
    return used;
  findings_.has_searched = true;
  return model::learned_plan(workload).firsts;
}

Learner::Learner(std::uint32_t partitions, std::uint64_t partition_bytes, Firsts base,
                 std::uint64_t seed)
    : cells_(PlanCells(partitions).count()),
      cell_bytes_(partition_bytes * partitions / cells_),
      has_whole_cells_(cells_ == partitions),
      seed_(seed),
      base_(std::move(base)),
      current_(base_),
      next_(base_),
      first_trial_(kBaseRounds),
      explored_(static_cast<std::uint32_t>(base_.size())),
      next_study_(kStudyLeast),
      plan_(base_),
      next_rest_(kRestLeast) {}

Learner::Turn Learner::turn(std::uint64_t starts) {
  round_ += starts;
  if (shifts_) current_ = next_;
  if (study_ && study_->is_done()) {
    adopt(study_->findings());
    study_.reset();
  }
  const Firsts& wanted = wanted_next();
  shifts_ = wanted != next_;
  if (shifts_) next_ = wanted;
  return {round_ >= next_sample_ || is_control(), shifts_};
}

/// More than 1 only if a sample or a control is the next event.
std::uint64_t Learner::next_turn() const {
  if (shifts_ || study_ || is_exploring_ || current_ != plan_ || next_ != plan_) return 1;
  const std::uint64_t next = plan_ == base_ ? next_sample_ : std::min(next_sample_, next_control_);
  return next > round_ ? next - round_ : 1;
}

/// Groups of the rounds after this one.
const Learner::Firsts& Learner::wanted_next() {
  if (is_exploring_) return next_trial();
  const bool is_control_due = plan_ != base_ && current_ == plan_ && round_ >= next_control_;
  if (!is_control_due) return plan_;
  if (base_ns_.count() != 0 && plan_ns_.count() != 0)
    space_controls(base_ns_.mean().value, plan_ns_.mean().value);
  next_control_ = round_ + control_gap_ / 2 + splitmix(round_ ^ seed_ << 32) % control_gap_;
  return base_;
}

/// After some rounds of the base, trials with ever fewer groups; two, four, ... if the base is one
/// group. Each trial comes between two rounds of the base, as long as trials are not dear.
const Learner::Firsts& Learner::next_trial() {
  const bool is_trial = current_ != base_;
  if (is_trial || round_ < first_trial_) return base_;
  const bool is_bulk = base_.size() == 1;
  if (is_dear() || explored_ == (is_bulk ? cells_ : 1)) {
    is_exploring_ = false;
    if (base_ns_.count() != 0 && best_trial_ns_ < kTried * base_ns_.least()) {
      use(best_trial_, base_ns_.median(), best_trial_ns_);
      is_provisional_ = true;
    }
    return plan_;
  }
  trial_ns_.clear();
  explored_ = is_bulk ? std::min(2 * explored_, cells_) : std::bit_floor(explored_ - 1);
  return trial_ = model::equal_groups(cells_, explored_);
}

/// Are the last trials so dear that a further one would be, too?
bool Learner::is_dear() {
  if (trial_ns_.count() == 0 || base_ns_.count() == 0) return false;
  const double left = trial_ns_.median() / base_ns_.median();
  dear_ = left > kTrialMost ? dear_ + 1 : 0;
  return dear_ == kDearMost || left > kTrialDear;
}

void Learner::explore() {
  is_exploring_ = is_due_ = is_anew_ = true;
  is_barred_ = false;
  next_study_ = kStudyLeast;
  first_trial_ = round_;
  explored_ = static_cast<std::uint32_t>(base_.size());
  dear_ = 0;
  trial_ns_.clear();
  best_trial_ns_ = kNoTrial;
  runs_.clear();
}

std::shared_ptr<Study> Learner::see(SeenRound round) {
  measure(round.end_ns - std::ranges::max(round.ready_ns));
  rounds_.add(round, kRoundsMost);
  auto& alike = runs_[current_.size()];
  alike.push_back(std::move(round.runs));
  keep_last(alike, kRunsMost);
  ++seen_;
  next_sample_ = round_ + 1;
  if (is_exploring_) return nullptr;
  if (current_ == plan_) {
    ++since_adoption_;
    if (!study_ && !is_due_)
      judge();
    else if (is_provisional_ && plan_ != base_ && against_base() > 0)
      plan_ = base_;  // the trials are still to be studied
  }
  if (!is_exploring_ && rounds_.count() >= kRoundsMin) next_sample_ = round_ + next_gap();
  return study();
}

void Learner::measure(double exposed_ns) {
  if (current_ == base_)
    base_ns_.add(exposed_ns);
  else if (is_exploring_)
    measure_trial(exposed_ns);
  else if (current_ == plan_)
    plan_ns_.add(exposed_ns);
}

void Learner::measure_trial(double exposed_ns) {
  trial_ns_.add(exposed_ns);
  if (exposed_ns >= best_trial_ns_) return;
  best_trial_ns_ = exposed_ns;
  best_trial_ = current_;
}

std::uint64_t Learner::next_gap() {
  const std::uint64_t steps = plan_ == base_ ? round_ / kRoundsMin : since_adoption_ / kRoundsMin;
  const std::uint64_t gap = std::clamp<std::uint64_t>(steps, 1, kGapMost);
  return 1 + splitmix(round_ ^ seed_ << 32) % (2 * gap - 1);
}

std::shared_ptr<Study> Learner::study() {
  if (is_exploring_ || study_ || !is_due_ || rounds_.count() < kRoundsMin) return nullptr;
  const bool is_measured = !has_whole_cells_ && base_ns_.count() != 0;
  Study::Question question{cell_bytes_,
                           rounds_,
                           {},
                           base_,
                           is_measured ? base_ns_.mean().value : 0,
                           is_anew_ ? Firsts{} : plan_};
  for (const auto& [groups, alike] : runs_)
    question.runs.insert(question.runs.end(), alike.begin(), alike.end());
  is_due_ = is_anew_ = false;
  seen_ = 0;
  study_ = std::make_shared<Study>(std::move(question));
  return study_;
}

void Learner::adopt(const Study::Findings& findings) {
  is_provisional_ = false;
  network_ = findings.network;
  usual_ns_ = findings.usual_ns;
  spread_ns_ = std::max({findings.spread_ns, kSpreadLeast * usual_ns_, kSpreadLeast_ns});
  drift_ns_ = 0;
  if (findings.firsts != plan_) {
    use(findings.firsts, findings.base_ns, usual_ns_);
    next_study_ = kStudyLeast;
  } else if (findings.has_searched) {
    next_study_ = std::min(2 * next_study_, kStudyMost);
  }
  if (plan_ == base_ && rest_ == 0) rest();
}

/// @param base_ns, plan_ns  their exposed times, as far as they are known
void Learner::use(const Firsts& plan, double base_ns, double plan_ns) {
  plan_ = plan;
  since_adoption_ = 0;
  plan_ns_.clear();
  space_controls(base_ns, plan_ns);
  next_control_ = round_ + control_gap_;
}

void Learner::space_controls(double base_ns, double plan_ns) {
  const double gap = plan_ns > 0 ? kControlShare * (base_ns / plan_ns - 1) : kControlMost;
  control_gap_ = static_cast<std::uint64_t>(std::clamp(gap, kControlLeast, kControlMost));
}

/// Is the plan still right?
void Learner::judge() {
  if (plan_ == base_) {
    if (rest_ != 0 && --rest_ == 0) return explore();
    if (is_barred_) return;
  } else if (against_base() > 0) {
    return give_up();
  } else if (has_drifted()) {
    if (since_adoption_ < kSoon) return give_up();
    rounds_.keep_last(kRoundsAfterChange);
    plan_ = base_;
    is_due_ = is_anew_ = true;
    return;
  } else if (against_base() < 0) {
    next_rest_ = kRestLeast;
  }
  if (seen_ >= next_study_ && network_) is_due_ = true;
}

/// The plan was bad, and the rounds that it was made from will not give a better one.
void Learner::give_up() {
  is_barred_ = true;
  rest();
}

/// Returns to the base, for a while.
void Learner::rest() {
  plan_ = base_;
  rest_ = next_rest_;
  next_rest_ = std::min(2 * next_rest_, kRestMost);
}

/// Compares the plan's exposed time with the most that is worth its use. 1: more; -1: less; 0: no
/// difference from chance. By squares: a root would need libm.
int Learner::against_base() const {
  constexpr double kVarianceLeast = 1e-3;
  if (plan_ns_.count() < kRoundsMin || base_ns_.count() < 2) return 0;
  const auto plan = plan_ns_.mean(), base = base_ns_.mean();
  const double more = plan.value - kWorth * base.value;
  const double variance = std::max(plan.variance + base.variance, kVarianceLeast);
  if (more * more <= kTold * kTold * variance) return 0;
  return more > 0 ? 1 : -1;
}

/// Page's test (1954): does the plan expose more time, round after round, than when it was made?
bool Learner::has_drifted() {
  if (!network_) return false;
  const model::Workload last = rounds_.workload(*network_, cell_bytes_).round(rounds_.count() - 1);
  const double more = model::exposed_ns(last, plan_) - usual_ns_ - spread_ns_;
  drift_ns_ = std::max(0.0, drift_ns_ + std::min(more, kOneDriftMost * spread_ns_));
  return drift_ns_ > kDriftMost * spread_ns_;
}

}  // namespace larklane::part
