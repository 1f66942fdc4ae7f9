// Fits of lines through points with errors.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "model/line.hpp"

namespace larklane::model {
namespace {

TEST(ModelLine, FollowsPointsThatLieOnOne) {
  const Measured points[] = {{0, 7, 1}, {2, 11, 3}, {5, 17, 0.5}};
  const Line line = fit_line(points);
  EXPECT_NEAR(line.at_zero.value, 7, 1e-9);
  EXPECT_NEAR(line.slope.value, 2, 1e-9);
  EXPECT_NEAR(line.chi_square, 0, 1e-9);
  EXPECT_NEAR(line.slope.high - line.slope.low, 0, 1e-9);
}

TEST(ModelLine, WeighsByErrorsAndCountsTheScatter) {
  // By hand: with equal errors 1 the line through (0, 0), (1, 2), (2, 2) is 1/3 + x, off by -1/3,
  // 2/3, -1/3: chi-square 2/3 at one degree of freedom; spread of x 2.
  const Measured points[] = {{0, 0, 1}, {1, 2, 1}, {2, 2, 1}};
  const Line line = fit_line(points);
  EXPECT_NEAR(line.at_zero.value, 1.0 / 3, 1e-12);
  EXPECT_NEAR(line.slope.value, 1, 1e-12);
  EXPECT_NEAR(line.chi_square, 2.0 / 3, 1e-12);
  EXPECT_NEAR(line.slope.high - 1, 12.7062 * std::sqrt(2.0 / 3 / 2), 1e-3);
  EXPECT_NEAR(line.at_zero.high - 1.0 / 3, 12.7062 * std::sqrt(2.0 / 3 * (1.0 / 3 + 0.5)), 1e-3);
  const Measured third_is_unsure[] = {{0, 0, 1}, {1, 2, 1}, {2, 2, 1e6}};
  EXPECT_NEAR(fit_line(third_is_unsure).slope.value, 2, 1e-6);
}

TEST(ModelLine, TwoPointsHaveNoScatter) {
  const Measured points[] = {{1, 3, 1}, {2, 5, 1}};
  const Line line = fit_line(points);
  EXPECT_NEAR(line.at_zero.value, 1, 1e-12);
  EXPECT_EQ(line.slope.low, line.slope.high);
}

TEST(ModelLine, QuantilesAreThoseOfTheTables) {
  const double tabled[][2] = {{1, 12.706}, {2, 4.303},  {3, 3.182},  {4, 2.776},  {5, 2.571},
                              {8, 2.306},  {12, 2.179}, {30, 2.042}, {120, 1.980}};
  for (const auto& [freedom, quantile] : tabled)
    EXPECT_NEAR(student_975(static_cast<std::size_t>(freedom)), quantile, 1e-3) << freedom;
}

std::vector<Measured> bent(std::size_t count, std::size_t change, double error) {
  std::vector<Measured> points;
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(i);
    points.push_back({x, i < change ? 10 + x : 30 + 3 * x, error});
  }
  return points;
}

TEST(ModelLine, FindsWhereCurvesChangeAndNoMore) {
  for (std::size_t change = 4; change <= 16; ++change) {
    const std::vector<Measured> curves[] = {bent(20, change, 0.1), bent(20, 20, 0.1)};
    EXPECT_EQ(find_changes(curves, 4, 0), (std::vector<std::size_t>{0, change}));
  }
  const std::vector<Measured> straight[] = {bent(20, 20, 0.1)};
  EXPECT_EQ(find_changes(straight, 4, 0), std::vector<std::size_t>{0});
}

// By hand: a step of s errors halfway leaves a chi-square of 1.25 s^2 to one line through 20
// points; another stretch costs 3 ln 20 = 9.
TEST(ModelLine, AStepIsAChangeIfItExplainsMoreThanItCosts) {
  for (const auto& [step, stretches] : {std::pair(2.0, 1), std::pair(5.0, 2)}) {
    std::vector<Measured> curve = bent(20, 20, 1);
    for (std::size_t i = 10; i < curve.size(); ++i) curve[i].y += step;
    EXPECT_EQ(find_changes(std::span(&curve, 1), 4, 0).size(), static_cast<std::size_t>(stretches));
  }
}

TEST(ModelLine, NoiseIsNoChange) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise;
  int changes = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<Measured>> curves(2);
    for (auto& curve : curves)
      for (int i = 0; i < 24; ++i) curve.push_back({double(i), 100 + 2.0 * i + noise(random), 1});
    changes += find_changes(curves, 4, 0).size() > 1;
  }
  EXPECT_LE(changes, 4);
}

TEST(ModelLine, ADeviationWithinTheToleranceIsNoChange) {
  std::vector<Measured> curve = bent(20, 20, 0.01);
  for (std::size_t i = 10; i < curve.size(); ++i) curve[i].y *= 1.01;
  EXPECT_EQ(find_changes(std::span(&curve, 1), 4, 0.0).size(), 2u);
  EXPECT_EQ(find_changes(std::span(&curve, 1), 4, 0.02).size(), 1u);
}

}  // namespace
}  // namespace larklane::model
