#pragma once
// Weighted least squares, and where a curve changes from one line to another. Pure functions.

#include <cstddef>
#include <span>
#include <vector>

namespace larklane::model {

/// A number with its 95 % confidence interval.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// A measured value with its standard error, at x. `error` > 0.
struct Measured {
  double x = 0;
  double y = 0;
  double error = 1;
};

/// y = at_zero + slope * x. The intervals are of Student's distribution with the scatter about the
/// line, so they hold if the errors are right up to a common factor.
struct Line {
  Estimate at_zero;
  Estimate slope;
  double chi_square = 0;  ///< sum of ((y - line) / error)^2
};

/// @param points  at least 2, at two x at least; with 2 the intervals are the values themselves
Line fit_line(std::span<const Measured> points);

/// The quantile of Student's distribution that leaves 2.5 % above it.
/// @param freedom  degrees, >= 1
double student_975(std::size_t freedom) noexcept;

/// Where all curves change at once: each stretch between two changes is a line of its own in each
/// of them. The fewest lines that explain the curves, by the Bayesian information criterion, found
/// among all possibilities (dynamic programming).
/// @param curves     of the same x, ascending
/// @param least      points of a stretch, >= 3
/// @param tolerance  share of a value by which it may be off a line for nothing
/// @return first index of each stretch, ascending, beginning with 0
std::vector<std::size_t> find_changes(std::span<const std::vector<Measured>> curves,
                                      std::size_t least, double tolerance);

}  // namespace larklane::model
