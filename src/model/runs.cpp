#include "model/runs.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <vector>

namespace larklane::model {
namespace {

constexpr std::size_t kUnknowns = 3;  // L, h, G
using Row = std::array<double, kUnknowns>;

/// A run that took longer than this many times its time alone has waited for another.
constexpr double kHeldUp = 1.1;

/// No time is longer: a year, nearly.
constexpr double kMostNs = 1e16;

/// factors * unknowns = target, more or less.
struct Equation {
  Row factors;
  double target;
};

/// Times of runs that began alone, and of those that followed another, by size.
struct Times {
  std::map<std::uint64_t, std::vector<double>> alone, following;

  /// @param known  of runs that were alone; null: a run followed another unless none was pending
  void add(std::vector<SeenRun> runs, const LogGP* known) {
    std::ranges::sort(runs, {}, &SeenRun::end_ns);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const SeenRun& run = runs[i];
      const double took = run.end_ns - run.begin_ns;
      bool follows = i > 0 && run.begin_ns < runs[i - 1].end_ns;
      if (follows && known != nullptr)
        follows = took > kHeldUp * (known->latency_ns + known->bytes_ns(run.bytes));
      (follows ? following : alone)[run.bytes].push_back(follows ? run.end_ns - runs[i - 1].end_ns
                                                                 : took);
    }
  }

  std::vector<Equation> equations() const {
    constexpr double kHint = 1e-3;  // where nothing tells L from h, they are equal
    std::vector<Equation> all;
    double least_ns = std::numeric_limits<double>::infinity();
    const auto take = [&](const auto& by_size, const Row& kind) {
      for (const auto& [bytes, times] : by_size) {
        const double ns = upper_median(times);
        if (!(ns > 0) || ns > kMostNs) continue;
        all.push_back({{kind[0] / ns, kind[1] / ns, further(bytes) / most_further() / ns}, 1});
        least_ns = std::min(least_ns, ns);
      }
    };
    take(alone, {1, 0, 0});
    take(following, {0, 1, 0});
    all.push_back({{kHint / least_ns, -kHint / least_ns, 0}, 0});
    return all;
  }

  bool has_two_sizes() const {
    auto sizes = alone;
    sizes.insert(following.begin(), following.end());
    return sizes.size() > 1;
  }

  static double further(std::uint64_t bytes) {
    return bytes > 1 ? static_cast<double>(bytes - 1) : 0;
  }
  /// The third unknown is the time of these bytes: of the others' order.
  double most_further() const {
    double most = 0;
    for (const auto* by_size : {&alone, &following})
      if (!by_size->empty()) most = std::max(most, further(by_size->rbegin()->first));
    return most;
  }
};

/// Least squares over the unknowns that are `free`; the others are 0.
Row solved(const std::vector<Equation>& equations, const std::array<bool, kUnknowns>& free) {
  std::array<std::array<double, kUnknowns + 1>, kUnknowns> system{};
  for (const auto& [factors, target] : equations)
    for (std::size_t i = 0; i < kUnknowns; ++i) {
      for (std::size_t j = 0; j < kUnknowns; ++j) system[i][j] += factors[i] * factors[j];
      system[i][kUnknowns] += factors[i] * target;
    }
  for (std::size_t i = 0; i < kUnknowns; ++i)
    if (!free[i]) {
      system[i] = {};
      for (auto& row : system) row[i] = 0;
      system[i][i] = 1;
    }
  // Gauss-Jordan; the matrix is symmetric and positive, so its own diagonal serves as pivots.
  for (std::size_t i = 0; i < kUnknowns; ++i)
    for (std::size_t row = 0; row < kUnknowns; ++row) {
      if (row == i) continue;
      const double share = system[row][i] / system[i][i];
      for (std::size_t j = 0; j <= kUnknowns; ++j) system[row][j] -= share * system[i][j];
    }
  Row found{};
  for (std::size_t i = 0; i < kUnknowns; ++i) found[i] = system[i][kUnknowns] / system[i][i];
  return found;
}

std::optional<LogGP> fitted(const Times& times) {
  if (!times.has_two_sizes() || times.most_further() == 0) return std::nullopt;
  const std::vector<Equation> equations = times.equations();
  if (equations.size() < kUnknowns) return std::nullopt;  // times of 0 tell nothing
  std::array<bool, kUnknowns> free{true, true, true};
  Row found = solved(equations, free);
  for (std::size_t i = kUnknowns; i-- > 0;)
    if (found[i] < 0) {
      free[i] = false;
      found = solved(equations, free);
    }
  LogGP network;
  network.latency_ns = std::max(0.0, found[0]);
  network.gap_ns = std::max(0.0, found[1]);
  network.gap_per_byte_ns = std::max(0.0, found[2] / times.most_further());
  return network;
}

}  // namespace

double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::optional<LogGP> fit_runs(std::span<const std::vector<SeenRun>> rounds) {
  Times all, alone;
  for (const std::vector<SeenRun>& runs : rounds) all.add(runs, nullptr);
  alone.alone = all.alone;
  const auto known = fitted(alone);
  if (!known) return fitted(all);
  Times told_apart;
  for (const std::vector<SeenRun>& runs : rounds) told_apart.add(runs, &*known);
  return fitted(told_apart);
}

}  // namespace larklane::model
