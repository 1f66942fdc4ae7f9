#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "random.hpp"

namespace larklane::bench {
namespace {

constexpr int kResamples = 1000;

double quantile_of_sorted(std::span<const double> sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(position);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (position - std::floor(position));
}

/// Median of a resample: as many samples as given, drawn with replacement.
double median_of_resample(std::span<const double> samples, Random& random,
                          std::vector<double>& space) {
  space.resize(samples.size());
  for (double& value : space) value = samples[random.below(samples.size())];
  std::ranges::sort(space);
  return quantile_of_sorted(space, 0.5);
}

template <class Draw>
Interval interval_of(Draw&& draw) {
  std::vector<double> found(kResamples);
  std::ranges::generate(found, draw);
  std::ranges::sort(found);
  return {quantile_of_sorted(found, 0.025), quantile_of_sorted(found, 0.975)};
}

/// @param change  (candidate's median, baseline's)
template <class Change>
Interval change_interval(std::span<const double> candidate, std::span<const double> baseline,
                         std::uint64_t seed, Change&& change) {
  Random random(seed, candidate.size(), baseline.size());
  std::vector<double> space;
  return interval_of([&] {
    const double median = median_of_resample(candidate, random, space);
    return change(median, median_of_resample(baseline, random, space));
  });
}

}  // namespace

double quantile(std::span<const double> samples, double fraction) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  return quantile_of_sorted(sorted, fraction);
}

Summary summary_of(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const auto at = [&](double fraction) { return quantile_of_sorted(sorted, fraction); };
  return {sorted.size(), sorted.front(), at(0.1), at(0.5), at(0.9), at(0.99), sorted.back()};
}

Interval median_interval(std::span<const double> samples, std::uint64_t seed) {
  Random random(seed, samples.size(), 0);
  std::vector<double> space;
  return interval_of([&] { return median_of_resample(samples, random, space); });
}

Interval ratio_interval(std::span<const double> candidate, std::span<const double> baseline,
                        std::uint64_t seed) {
  return change_interval(candidate, baseline, seed, std::divides());
}

Interval difference_interval(std::span<const double> candidate, std::span<const double> baseline,
                             std::uint64_t seed) {
  return change_interval(candidate, baseline, seed, std::minus());
}

}  // namespace larklane::bench
