#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>

#include "measure/noise.hpp"
#include "measure/random.hpp"
#include "measure/statistics.hpp"

namespace larklane::bench {
namespace {

constexpr double kCompute = 1000;

Noise make(const std::string& text, double percent, std::uint64_t seed = 1) {
  std::string error;
  Noise noise = Noise::parse(text, percent, seed, &error);
  EXPECT_EQ(error, "") << text;
  return noise;
}

std::vector<double> draw(const Noise& noise, std::uint64_t rounds, std::uint32_t threads) {
  std::vector<double> times;
  for (std::uint64_t r = 0; r < rounds; ++r)
    for (std::uint32_t t = 0; t < threads; ++t)
      times.push_back(noise.compute_ns(kCompute, r, t, threads));
  return times;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(Noise, SameSeedSameNoiseWhoeverAsksFirst) {
  const Noise noise = make("uniform", 10);
  const double later = noise.compute_ns(kCompute, 5, 2, 4);
  draw(noise, 20, 4);
  EXPECT_EQ(noise.compute_ns(kCompute, 5, 2, 4), later);
  EXPECT_NE(make("uniform", 10, 2).compute_ns(kCompute, 5, 2, 4), later);
}

TEST(Noise, SingleDelaysOneThreadAndNotAlwaysTheSame) {
  const Noise noise = make("single", 4);
  std::set<std::uint32_t> delayed;
  for (std::uint64_t r = 0; r < 200; ++r) {
    int late = 0;
    for (std::uint32_t t = 0; t < 4; ++t) {
      const double time = noise.compute_ns(kCompute, r, t, 4);
      EXPECT_TRUE(time == kCompute || time == 1.04 * kCompute);
      if (time > kCompute) ++late, delayed.insert(t);
    }
    EXPECT_EQ(late, 1);
  }
  EXPECT_EQ(delayed.size(), 4u);
}

TEST(Noise, UniformFillsItsInterval) {
  const std::vector<double> times = draw(make("uniform", 10), 5000, 4);
  EXPECT_GE(*std::ranges::min_element(times), kCompute);
  EXPECT_LT(*std::ranges::max_element(times), 1.1 * kCompute);
  EXPECT_NEAR(mean(times), 1.05 * kCompute, 1);
}

TEST(Noise, GaussianHasItsDeviationAndNoNegativeTime) {
  const std::vector<double> times = draw(make("gaussian", 10), 5000, 4);
  EXPECT_NEAR(mean(times), kCompute, 3);
  EXPECT_NEAR(deviation(times), 0.1 * kCompute, 3);
  const std::vector<double> wide = draw(make("gaussian", 200), 2000, 1);
  EXPECT_GE(*std::ranges::min_element(wide), 0);
}

TEST(Noise, ExponentialHasItsMean) {
  EXPECT_NEAR(mean(draw(make("exponential", 10), 10000, 4)), 1.1 * kCompute, 3);
}

// 1000 times a second 100 us: a compute time of 9 ms of work takes 10 ms, give or take one hit.
TEST(Noise, PeriodicTakesItsShare) {
  const Noise noise = make("periodic:1000:100", 0);
  double sum = 0;
  for (std::uint64_t r = 0; r < 2000; ++r) {
    const double time = noise.compute_ns(9e6, r, 0, 1);
    EXPECT_GE(time, 9e6 + 9 * 1e5);
    EXPECT_LE(time, 9e6 + 11 * 1e5);
    sum += time;
  }
  EXPECT_NEAR(sum / 2000, 1e7, 2e4);
}

TEST(Noise, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"", "gauss", "periodic:", "periodic:10", "periodic:0:1",
                           "periodic:1000:1000", "periodic:10:x", "trace:/nonexistent"}) {
    std::string error;
    Noise::parse(text, 1, 1, &error);
    EXPECT_NE(error, "") << text;
  }
}

class TraceFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = testing::TempDir() + "delays.json";
    std::ofstream(path) << text;
    return "trace:" + path;
  }
};

TEST_F(TraceFile, IsReplayedRoundByRound) {
  const Noise noise = make(write(R"({"delays_ns": [[0, 5], [7, 0]]})"), 0);
  EXPECT_EQ(noise.compute_ns(100, 0, 1, 2), 105);
  EXPECT_EQ(noise.compute_ns(100, 1, 0, 2), 107);
  EXPECT_EQ(noise.compute_ns(100, 2, 1, 2), 105);  // from the beginning again
  EXPECT_EQ(noise.compute_ns(100, 0, 3, 4), 105);  // more threads than were recorded
}

TEST_F(TraceFile, CutShortOrOddIsRefusedByName) {
  for (const char* text : {"{", "{}", R"({"delays_ns": []})", R"({"delays_ns": [[]]})",
                           R"({"delays_ns": [[-1]]})", R"({"delays_ns": [["x"]]})"}) {
    std::string error;
    Noise::parse(write(text), 1, 1, &error);
    EXPECT_NE(error.find("delays.json"), std::string::npos) << text;
  }
}

TEST(Statistics, QuantilesOfFive) {
  const std::vector<double> samples{50, 10, 40, 20, 30};
  EXPECT_EQ(quantile(samples, 0), 10);
  EXPECT_EQ(quantile(samples, 0.5), 30);
  EXPECT_EQ(quantile(samples, 0.1), 14);
  EXPECT_EQ(quantile(samples, 1), 50);
  const Summary summary = summary_of(samples);
  EXPECT_EQ(summary.n, 5u);
  EXPECT_EQ(summary.min, 10);
  EXPECT_EQ(summary.max, 50);
}

TEST(Statistics, TheIntervalCoversTheMedianAsOftenAsItSays) {
  int covered = 0;
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    Random random(7, trial, 0);
    std::vector<double> samples(40);
    for (double& sample : samples) sample = random.exponential();
    const Interval interval = median_interval(samples, trial);
    covered += interval.lower <= std::log(2) && std::log(2) <= interval.upper;
  }
  EXPECT_GE(covered, 180);  // 95 % of 200 is 190, its deviation 3
  EXPECT_LE(covered, 199);
}

TEST(Statistics, OneValueHasNoSpread) {
  const std::vector<double> same(10, 3.0);
  EXPECT_EQ(median_interval(same, 1).lower, 3);
  EXPECT_EQ(ratio_interval(same, same, 1).upper, 1);
  EXPECT_EQ(difference_interval(same, same, 1).upper, 0);
}

}  // namespace
}  // namespace larklane::bench
