#pragma once
// Statistics of samples, without clamping or removal of outliers.

#include <cstdint>
#include <span>

namespace larklane::bench {

/// The value below which `fraction` of the samples lie, interpolated between neighbours: position
/// fraction * (n - 1) of the sorted samples (type 7 of Hyndman and Fan, The American Statistician
/// 50(4), 1996).
/// @param samples  any order, not empty
double quantile(std::span<const double> samples, double fraction);

struct Summary {
  std::uint64_t n;
  double min, p10, median, p90, p99, max;
};
Summary summary_of(std::span<const double> samples);

/// A 95 % interval.
struct Interval {
  double lower, upper;
};

/// Percentile bootstrap of the median. The same seed gives the same interval. (Efron, The Annals of
/// Statistics 7(1), 1979)
Interval median_interval(std::span<const double> samples, std::uint64_t seed);

/// Percentile bootstrap of median(candidate) / median(baseline), each drawn independently.
Interval ratio_interval(std::span<const double> candidate, std::span<const double> baseline,
                        std::uint64_t seed);
/// The same for median(candidate) - median(baseline).
Interval difference_interval(std::span<const double> candidate, std::span<const double> baseline,
                             std::uint64_t seed);

}  // namespace larklane::bench
