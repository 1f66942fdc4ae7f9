#include "part/learner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace larklane::part {
namespace {

/// Rounds at the start that are bulk and tell what bulk leaves.
constexpr std::uint64_t kBulkRounds = 3;
/// From 8 rounds on chance can be told from what comes back (docs/model.md).
constexpr std::size_t kRoundsMin = 8, kRoundsMost = 12;
/// Of rounds with the same number of groups.
constexpr std::size_t kRunsMost = 4;
/// Of a change's rounds so many are already known when it is noticed.
constexpr std::size_t kRoundsAfterChange = 4;
/// Of how many rounds one is seen in the end, on average; at first all are. By chance, lest a
/// pattern with a period is seen at the same point of it again and again.
constexpr std::uint64_t kGapMost = 16;
/// A plan has to be worth it.
constexpr double kWorth = 0.97;
constexpr double kSpreadLeast = 0.05, kSpreadLeast_ns = 100, kDriftMost = 4;
constexpr std::uint32_t kRetreatMost = 1024;
/// If two rounds in a row that try costs out, one alone may be chance, left more than this many
/// times as much as bulk, none with twice as many groups follows. It would leave up to twice as
/// much.
constexpr double kTrialMost = 1.1;
constexpr int kDearMost = 2;

std::uint64_t mixed(std::uint64_t x) noexcept {
  // SplitMix64 (Steele, Lea, Flood, 2014).
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class T>
void keep_last(std::vector<T>& all, std::size_t most) {
  if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(most));
}

}  // namespace

Cells::Cells(std::uint32_t partitions) noexcept
    : partitions_(partitions), count_(std::min(partitions, kMax)) {}

std::vector<std::uint32_t> Cells::boundaries(std::vector<std::uint32_t> firsts) const {
  for (std::uint32_t& first : firsts)
    first = static_cast<std::uint32_t>(first * std::uint64_t{partitions_} / count_);
  return firsts;
}

double Recent::median() const { return median_of({values_.begin(), values_.begin() + count()}); }

double Recent::variance() const {
  std::vector<double> off(values_.begin(), values_.begin() + count());
  const double middle = median();
  for (double& value : off) value = std::abs(value - middle);
  // 1.4826: from the median deviation to the standard one; 1.2533: a median's error is that much
  // more than a mean's.
  const double deviation = 1.4826 * 1.2533 * median_of(std::move(off));
  return deviation * deviation / count();
}

Study::Study(std::uint64_t cell_bytes, std::vector<std::vector<double>> rounds,
             std::vector<std::vector<model::SeenRun>> runs)
    : cell_bytes_(cell_bytes), rounds_(std::move(rounds)), runs_(std::move(runs)) {}

void Study::run() {
  findings_ = {model::fit_runs(runs_), {0}};
  if (findings_.network) {
    const model::Workload workload{{.network = *findings_.network}, cell_bytes_, rounds_};
    model::Plan plan = model::learned_plan(workload);
    if (plan.exposed_ns < model::exposed_ns(workload, findings_.firsts))
      findings_.firsts = std::move(plan.firsts);
  }
  // release: pairs with is_done().
  done_.store(true, std::memory_order_release);
}

Learner::Learner(std::uint32_t partitions, std::uint64_t partition_bytes)
    : cells_(Cells(partitions).count()),
      cell_bytes_(partition_bytes * partitions / cells_),
      current_(bulk_),
      next_(bulk_),
      wanted_() {}

void Learner::want(std::vector<std::uint32_t> firsts) { wanted_ = std::move(firsts); }

Learner::Turn Learner::turn() {
  ++round_;
  if (shifts_) {
    current_ = next_;
    if (current_ != bulk_) exposed_ns_.clear();
    shifts_ = false;
  }
  if (is_exploring_) {
    try_costs_out();
  } else if (study_ && study_->is_done()) {
    adopt(study_->findings());
    study_.reset();
  }
  if (!wanted_.empty()) {
    shifts_ = wanted_ != next_;
    next_ = std::exchange(wanted_, {});
  }
  return {round_ >= next_sample_, shifts_};
}

/// After some rounds of bulk two groups, four, ..., each between two of bulk, as long as they cost
/// little enough.
void Learner::try_costs_out() {
  if (round_ < kBulkRounds) return;
  const bool is_trial = current_ != bulk_;
  if (is_trial) return want(bulk_);
  if (exposed_ns_.count() != 0)
    dear_ = exposed_ns_.median() > kTrialMost * bulk_exposed_ns_.median() ? dear_ + 1 : 0;
  if (explored_ == cells_ || dear_ == kDearMost) {
    is_exploring_ = false;
    return;
  }
  explored_ = std::min(2 * explored_, cells_);
  want(model::equal_groups(cells_, explored_));
}

std::shared_ptr<Study> Learner::see(SeenRound round) {
  const double exposed = round.end_ns - std::ranges::max(round.ready_ns);
  (current_ == bulk_ ? bulk_exposed_ns_ : exposed_ns_).add(exposed);
  rounds_.push_back(std::move(round.ready_ns));
  keep_last(rounds_, kRoundsMost);
  auto& alike = runs_[current_.size()];
  alike.push_back(std::move(round.runs));
  keep_last(alike, kRunsMost);
  ++seen_;
  ++seen_ever_;
  next_sample_ = round_ + 1;
  if (is_exploring_ || study_) return nullptr;
  if (!is_due_ && !shifts_) judge();
  if (rounds_.size() < kRoundsMin) return nullptr;
  const std::uint64_t gap = std::clamp<std::uint64_t>(seen_ever_ / kRoundsMin, 1, kGapMost);
  next_sample_ += mixed(round_) % (2 * gap - 1);
  if (!std::exchange(is_due_, false)) return nullptr;
  seen_ = 0;
  study_ = std::make_shared<Study>(cell_bytes_, rounds_, runs());
  return study_;
}

void Learner::adopt(const Study::Findings& findings) {
  network_ = findings.network;
  drift_ns_ = usual_ns_ = spread_ns_ = 0;
  if (!network_) return want(bulk_);
  std::vector<double> left_ns;
  for (const std::vector<double>& round : rounds_)
    left_ns.push_back(model::exposed_ns(workload({&round, 1}), findings.firsts));
  const auto count = static_cast<double>(left_ns.size());
  for (const double left : left_ns) usual_ns_ += left / count;
  for (const double left : left_ns) spread_ns_ += std::abs(left - usual_ns_) / count;
  spread_ns_ = std::max({spread_ns_, kSpreadLeast * usual_ns_, kSpreadLeast_ns});
  want(findings.firsts);
}

/// The groups of this round are those of the next ones: are they still right?
void Learner::judge() {
  if (retreat_ > 0) {
    if (--retreat_ == 0) is_due_ = true;
  } else if (has_lost_to_bulk()) {
    want(bulk_);
    retreat_ = next_retreat_;
    next_retreat_ = std::min(2 * next_retreat_, kRetreatMost);
  } else if (has_drifted()) {
    keep_last(rounds_, kRoundsAfterChange);
    is_due_ = true;
  } else if (seen_ >= kRoundsMin && (!network_ || is_better_known())) {
    is_due_ = true;
  }
}

bool Learner::has_lost_to_bulk() const {
  if (current_ == bulk_ || exposed_ns_.count() < 4 || bulk_exposed_ns_.count() < 3) return false;
  const double more = exposed_ns_.median() - kWorth * bulk_exposed_ns_.median();
  return more > 0 && more * more > 4 * (exposed_ns_.variance() + bulk_exposed_ns_.variance());
}

/// Page's test (1954): is more left, round after round, than when the plan was made?
bool Learner::has_drifted() {
  if (!network_) return false;
  const double exposed = model::exposed_ns(workload({&rounds_.back(), 1}), current_);
  drift_ns_ = std::max(0.0, drift_ns_ + exposed - usual_ns_ - spread_ns_ / 2);
  return drift_ns_ > kDriftMost * spread_ns_;
}

/// Would even equal groups leave less now?
bool Learner::is_better_known() const {
  const model::Workload recent = workload(rounds_);
  return model::best_equal_plan(recent).exposed_ns < kWorth * model::exposed_ns(recent, current_);
}

model::Workload Learner::workload(std::span<const std::vector<double>> rounds) const {
  return {{.network = *network_}, cell_bytes_, rounds};
}

std::vector<std::vector<model::SeenRun>> Learner::runs() const {
  std::vector<std::vector<model::SeenRun>> all;
  for (const auto& [groups, alike] : runs_) all.insert(all.end(), alike.begin(), alike.end());
  return all;
}

}  // namespace larklane::part
