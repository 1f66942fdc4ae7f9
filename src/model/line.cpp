#include "model/line.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace larklane::model {
namespace {

/// Sums from which the lines of all stretches follow; x and y about the first point, so that little
/// is lost to rounding.
struct Sums {
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0, wyy = 0;
  void add(double x, double y, double weight) noexcept {
    w += weight;
    wx += weight * x;
    wy += weight * y;
    wxx += weight * x * x;
    wxy += weight * x * y;
    wyy += weight * y * y;
  }
};

double chi_square_of(std::span<const Measured> points, double tolerance) {
  Sums sums;
  const Measured& origin = points.front();
  const auto weight_of = [&](const Measured& point) {
    const double error = std::hypot(point.error, tolerance * point.y);
    return 1 / (error * error);
  };
  for (const Measured& point : points)
    sums.add(point.x - origin.x, point.y - origin.y, weight_of(point));
  const double spread = sums.w * sums.wxx - sums.wx * sums.wx;
  const double slope = spread > 0 ? (sums.w * sums.wxy - sums.wx * sums.wy) / spread : 0;
  const double at_origin = (sums.wy - slope * sums.wx) / sums.w;
  double sum = 0;
  for (const Measured& point : points) {
    const double off = point.y - origin.y - at_origin - slope * (point.x - origin.x);
    sum += off * off * weight_of(point);
  }
  return sum;
}

}  // namespace

double student_975(std::size_t freedom) noexcept {
  // Exact for small ones; then Abramowitz and Stegun 26.7.5.
  constexpr double kSmall[] = {12.7062, 4.3027, 3.1824, 2.7764, 2.5706,
                               2.4469,  2.3646, 2.3060, 2.2622, 2.2281};
  if (freedom <= std::size(kSmall)) return kSmall[std::max<std::size_t>(freedom, 1) - 1];
  const double z = 1.959964, n = static_cast<double>(freedom);
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

Line fit_line(std::span<const Measured> points) {
  double weights = 0, mean_x = 0, mean_y = 0;
  for (const Measured& point : points) {
    const double weight = 1 / (point.error * point.error);
    weights += weight;
    mean_x += weight * point.x;
    mean_y += weight * point.y;
  }
  mean_x /= weights;
  mean_y /= weights;
  double spread = 0, together = 0;
  for (const Measured& point : points) {
    const double weight = 1 / (point.error * point.error);
    spread += weight * (point.x - mean_x) * (point.x - mean_x);
    together += weight * (point.x - mean_x) * (point.y - mean_y);
  }
  Line line;
  const double slope = spread > 0 ? together / spread : 0;
  const double at_zero = mean_y - slope * mean_x;
  for (const Measured& point : points) {
    const double off = (point.y - at_zero - slope * point.x) / point.error;
    line.chi_square += off * off;
  }
  double slope_off = 0, zero_off = 0;
  if (points.size() > 2 && spread > 0) {
    const std::size_t freedom = points.size() - 2;
    const double scale =
        student_975(freedom) * std::sqrt(line.chi_square / static_cast<double>(freedom));
    slope_off = scale / std::sqrt(spread);
    zero_off = scale * std::sqrt(1 / weights + mean_x * mean_x / spread);
  }
  line.slope = {slope, slope - slope_off, slope + slope_off};
  line.at_zero = {at_zero, at_zero - zero_off, at_zero + zero_off};
  return line;
}

std::vector<std::size_t> find_changes(std::span<const std::vector<Measured>> curves,
                                      std::size_t least, double tolerance) {
  const std::size_t count = curves.front().size();
  // A line has two parameters in each curve, and a stretch begins somewhere.
  const double penalty = (2 * static_cast<double>(curves.size()) + 1) *
                         std::log(static_cast<double>(count * curves.size()));
  struct Best {
    double cost = std::numeric_limits<double>::infinity();
    std::size_t first = 0;  ///< of the last stretch
  };
  std::vector<Best> best(count + 1);  // of the first points
  best[0].cost = 0;
  for (std::size_t end = std::min(least, count); end <= count; ++end) {
    for (std::size_t first = 0; first == 0 || first + least <= end; ++first) {
      if (std::isinf(best[first].cost)) continue;
      double cost = best[first].cost + penalty;
      for (const auto& curve : curves)
        cost += chi_square_of(std::span(curve).subspan(first, end - first), tolerance);
      if (cost < best[end].cost) best[end] = {cost, first};
    }
  }
  std::vector<std::size_t> firsts;
  for (std::size_t end = count; end > 0; end = best[end].first) firsts.push_back(best[end].first);
  std::ranges::reverse(firsts);
  return firsts;
}

}  // namespace larklane::model
