#include "model/plan.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace larklane::model {
namespace {

using Firsts = std::vector<std::uint32_t>;

constexpr int kTurns = 48;
constexpr std::size_t kFolds = 4;

std::vector<Part> parts_of(const Workload& workload, std::span<const double> ready_ns,
                           std::span<const std::uint32_t> firsts) {
  std::vector<Part> parts;
  for (std::size_t group = 0; group < firsts.size(); ++group) {
    const std::uint32_t end = group + 1 < firsts.size() ? firsts[group + 1] : workload.partitions();
    const std::uint32_t count = end - firsts[group];
    parts.push_back({std::ranges::max(ready_ns.subspan(firsts[group], count)),
                     count * workload.partition_bytes});
  }
  return parts;
}

/// When the last thread has copied the groups that it completes. No thread waits for another one's
/// copy.
double copied_ns(const Workload& workload, std::span<const double> ready_ns,
                 std::span<const std::uint32_t> threads, std::span<const std::uint32_t> firsts) {
  std::map<std::uint32_t, double> end_ns;  // by thread
  for (std::size_t p = 0; p < ready_ns.size(); ++p) {
    double& end = end_ns[threads[p]];
    end = std::max(end, ready_ns[p]);
  }
  for (std::size_t group = 0; group < firsts.size(); ++group) {
    const std::uint32_t end = group + 1 < firsts.size() ? firsts[group + 1] : workload.partitions();
    const auto of_group = ready_ns.subspan(firsts[group], end - firsts[group]);
    const auto last = std::ranges::max_element(of_group) - of_group.begin();
    const std::uint64_t bytes = of_group.size() * workload.partition_bytes;
    end_ns[threads[firsts[group] + static_cast<std::size_t>(last)]] +=
        workload.medium.network.message_ns(bytes);
  }
  double last = 0;
  for (const auto& [thread, end] : end_ns) last = std::max(last, end);
  return last;
}

Plan evaluated(const Workload& workload, Firsts firsts) {
  const double exposed = exposed_ns(workload, firsts);
  return {std::move(firsts), exposed};
}

/// How much the times up to that of each partition's readiness weigh, in one round.
class Weights {
 public:
  explicit Weights(std::span<const double> ready_ns)
      : ready_ns_(ready_ns), of_time_(ready_ns.size(), 0), up_to_(ready_ns.size(), 0) {
    order_.resize(ready_ns.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, {}, [&](std::size_t i) { return ready_ns[i]; });
    of_time_[order_.back()] = 1;
    sum();
  }

  double up_to(std::size_t partition) const noexcept { return up_to_[partition]; }

  /// The time at which `parts` leave most to do gets `share` of all weight.
  void answer(const Medium& medium, std::vector<Part> parts, double share) {
    std::ranges::stable_sort(parts, std::ranges::greater{}, &Part::ready_ns);
    double work = 0, most = -1, worst = 0;
    for (const Part& part : parts) {
      work += medium.network.period_ns(part.bytes);
      if (part.ready_ns + work <= most) continue;
      most = part.ready_ns + work;
      worst = part.ready_ns;
    }
    for (double& weight : of_time_) weight *= 1 - share;
    of_time_[*std::ranges::find(order_, worst, [&](std::size_t i) { return ready_ns_[i]; })] +=
        share;
    sum();
  }

 private:
  void sum() {
    double sum = 0;
    for (std::size_t i = 0; i < order_.size();) {
      std::size_t end = i;
      for (; end < order_.size() && ready_ns_[order_[end]] == ready_ns_[order_[i]]; ++end)
        sum += of_time_[order_[end]];
      for (; i < end; ++i) up_to_[order_[i]] = sum;
    }
  }

  std::span<const double> ready_ns_;
  std::vector<std::size_t> order_;  ///< partitions, the first to be ready first
  std::vector<double> of_time_, up_to_;
};

/// The groups with the least weighted work.
Firsts least_work(const Workload& workload, std::span<const Weights> weights) {
  const std::uint32_t count = workload.partitions();
  const Medium& medium = workload.medium;
  const double of_each =
      medium.per_part_ns + (medium.is_receiver_serial ? medium.network.recv_overhead_ns : 0);
  std::vector<double> best(count + 1, std::numeric_limits<double>::infinity());
  std::vector<std::uint32_t> first_of_last(count + 1, 0);
  best[0] = 0;
  std::vector<double> most(weights.size());
  for (std::uint32_t first = 0; first < count; ++first) {
    std::ranges::fill(most, 0);
    for (std::uint32_t end = first + 1; end <= count; ++end) {
      double sum = 0;
      for (std::size_t round = 0; round < weights.size(); ++round)
        sum += most[round] = std::max(most[round], weights[round].up_to(end - 1));
      const double cost = best[first] + of_each +
                          medium.network.period_ns((end - first) * workload.partition_bytes) * sum /
                              static_cast<double>(weights.size());
      if (cost >= best[end]) continue;
      best[end] = cost;
      first_of_last[end] = first;
    }
  }
  Firsts firsts;
  for (std::uint32_t end = count; end > 0; end = first_of_last[end])
    firsts.push_back(first_of_last[end]);
  std::ranges::reverse(firsts);
  return firsts;
}

/// With one boundary more or less, as long as that helps.
Plan improved(const Workload& workload, Plan plan) {
  const auto take = [&](Firsts firsts) {
    Plan other = evaluated(workload, std::move(firsts));
    if (!(other.exposed_ns < plan.exposed_ns)) return false;
    plan = std::move(other);
    return true;
  };
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (std::uint32_t place = 1; place < workload.partitions(); ++place) {
      Firsts firsts = plan.firsts;
      const auto at = std::ranges::lower_bound(firsts, place);
      if (at != firsts.end() && *at == place)
        firsts.erase(at);
      else
        firsts.insert(at, place);
      has_changed |= take(std::move(firsts));
    }
  }
  return plan;
}

/// The differences between the remainders of two plans, round by round.
class Savings {
 public:
  void add(double saved) {
    sum_ += saved;
    squares_ += saved * saved;
    ++count_;
  }
  /// More than the standard error?
  bool are_told() const {
    const double mean = sum_ / count_;
    const double variance = std::max(0.0, squares_ / count_ - mean * mean) / (count_ - 1);
    return mean > 0 && mean * mean > variance;
  }

 private:
  double sum_ = 0, squares_ = 0, count_ = 0;
};

}  // namespace

double exposed_ns(const Workload& workload, std::span<const std::uint32_t> firsts) {
  double sum = 0;
  for (std::size_t round = 0; round < workload.rounds.size(); ++round) {
    const std::vector<double>& ready_ns = workload.rounds[round];
    const double end_ns = workload.threads.empty()
                              ? completion_ns(workload.medium, parts_of(workload, ready_ns, firsts))
                              : copied_ns(workload, ready_ns, workload.threads[round], firsts);
    sum += end_ns - std::ranges::max(ready_ns);
  }
  return sum / static_cast<double>(workload.rounds.size());
}

std::vector<std::uint32_t> equal_groups(std::uint32_t partitions, std::uint32_t count) {
  Firsts firsts(count);
  for (std::uint64_t group = 0; group < count; ++group)
    firsts[group] = static_cast<std::uint32_t>(group * partitions / count);
  return firsts;
}

Plan best_equal_plan(const Workload& workload) {
  const std::uint32_t best = best_power_of_two(workload.partitions(), [&](std::uint32_t count) {
    return exposed_ns(workload, equal_groups(workload.partitions(), count));
  });
  return evaluated(workload, equal_groups(workload.partitions(), best));
}

Plan best_plan(const Workload& workload) {
  Plan best = best_equal_plan(workload);
  std::vector<Weights> weights;
  for (const std::vector<double>& ready_ns : workload.rounds) weights.emplace_back(ready_ns);
  for (int turn = 1; turn <= kTurns; ++turn) {
    Plan plan = evaluated(workload, least_work(workload, weights));
    for (std::size_t round = 0; round < weights.size(); ++round)
      weights[round].answer(workload.medium,
                            parts_of(workload, workload.rounds[round], plan.firsts),
                            1.0 / (turn + 1));
    if (plan.exposed_ns < best.exposed_ns) best = std::move(plan);
  }
  return improved(workload, std::move(best));
}

Plan learned_plan(const Workload& workload) {
  const std::size_t rounds = workload.rounds.size(), folds = std::min<std::size_t>(rounds, kFolds);
  if (rounds < 2) return best_equal_plan(workload);
  Savings by_any, by_equal;  // over equal groups, and of these over one group
  for (std::size_t fold = 0; fold < folds; ++fold) {
    std::vector<std::vector<double>> seen;
    std::vector<std::vector<std::uint32_t>> threads;
    for (std::size_t i = 0; i < rounds; ++i) {
      if (i % folds == fold) continue;
      seen.push_back(workload.rounds[i]);
      if (!workload.threads.empty()) threads.push_back(workload.threads[i]);
    }
    const Workload others{workload.medium, workload.partition_bytes, seen, threads};
    const Plan any = best_plan(others), equal = best_equal_plan(others);
    for (std::size_t i = fold; i < rounds; i += folds) {
      const Workload one = workload.round(i);
      const double left_by_equal = exposed_ns(one, equal.firsts);
      by_any.add(left_by_equal - exposed_ns(one, any.firsts));
      by_equal.add(exposed_ns(one, Firsts{0}) - left_by_equal);
    }
  }
  if (by_any.are_told()) {
    Plan any = best_plan(workload);
    if (any.exposed_ns < exposed_ns(workload, Firsts{0})) return any;
  }
  return by_equal.are_told() ? best_equal_plan(workload) : evaluated(workload, {0});
}

}  // namespace larklane::model
