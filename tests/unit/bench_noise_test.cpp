// Noise of the benchmarks: seeds, distributions, recorded detours.

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

TEST(Noise, SameSeedSameNoiseInAnyOrder) {
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

TEST(Noise, RefusesUnknownNames) {
  for (const char* text :
       {"", "gauss", "periodic:", "periodic:10", "periodic:0:1", "periodic:1000:1000",
        "periodic:10:x", "periodic:nan:1", "periodic:inf:0", "periodic:1e-320:1", "periodic:10:nan",
        "trace:/nonexistent"}) {
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

// The last 100 of each 1000 ns are lost.
Detours regular() {
  Detours detours{10000, {{}, {}}};
  for (double at = 900; at < 10000; at += 1000) detours.cores[0].push_back({at, 100});
  return detours;
}

TEST(Detours, TakeTheirTime) {
  const Detours detours = regular();
  const auto takes = [&](double work, double begin) {
    return detours.disturbed_ns(work, 0, begin);
  };
  EXPECT_EQ(takes(900, 0), 900);  // over as the first begins
  EXPECT_EQ(takes(901, 0), 1001);
  EXPECT_EQ(takes(1, 950), 51);        // begun in the midst of one
  EXPECT_EQ(takes(1, 9950), 51);       // of the last
  EXPECT_EQ(takes(1000, 9000), 1100);  // across the end
  EXPECT_EQ(takes(9000, 500), 10000);
  EXPECT_EQ(takes(90000, 500), 100000);  // ten times around
  EXPECT_EQ(takes(9e12, 500), 1e13);
  EXPECT_EQ(takes(9e12 + 401, 500), 1e13 + 501);
  EXPECT_EQ(takes(90000, 950), 50 + 9 * 10000 + 9900);
  EXPECT_EQ(detours.disturbed_ns(12345, 1, 7), 12345);  // a core that loses nothing
}

TEST_F(TraceFile, OfDetoursIsReplayedFromATimeThatIsDrawn) {
  const std::string file = write(
      R"({"span_ns": 10000, "detours_ns": [[[900, 100], [5000, 100]], [[900, 100], [5000, 100]]]})");
  const Noise noise = make(file, 0);
  int hit = 0;
  for (std::uint64_t r = 0; r < 10000; ++r) {
    const double time = noise.compute_ns(400, r, 0, 4);
    ASSERT_EQ(noise.compute_ns(400, r, 1, 4), time) << "cores were recorded at the same time";
    ASSERT_GE(time, 399.99);
    ASSERT_LE(time, 500.01);
    if (time > 400.01) ++hit;
  }
  EXPECT_NEAR(hit, 1000, 120);  // of 10000 start times, 2 x 500 meet a detour
  int apart = 0;
  for (std::uint64_t r = 0; r < 10000; ++r)
    apart += noise.compute_ns(400, r, 0, 4) != noise.compute_ns(400, r, 2, 4);
  EXPECT_GT(apart, 1000) << "further threads of a core have a time of their own";
}

TEST_F(TraceFile, OfDetoursThatCanNotBeIsRefusedByName) {
  for (const char* cores : {"[]", "[[[1]]]", "[[[0, 11]]]", "[[[-1, 2]]]", "[[[0, 3], [2, 1]]]",
                            "[[[0, 10]]]", "[[[0, 9.95]]]", "7"}) {
    std::string error;
    Noise::parse(write(std::string(R"({"span_ns": 10, "detours_ns": )") + cores + "}"), 1, 1,
                 &error);
    EXPECT_NE(error.find("delays.json"), std::string::npos) << cores;
  }
}

// Each machine's detours take their share of a long time.
TEST(Noise, PresetsOfMachinesMatchTheirRecords) {
  EXPECT_NE(noise_presets().find("vm-epyc"), std::string::npos);
  const Noise noise = make("vm-epyc", 0);
  EXPECT_EQ(noise.kind(), Noise::Kind::detours);
  const double time = noise.compute_ns(1e12, 0, 0, 1);
  EXPECT_NEAR(time, 1e12 / (1 - 0.03557), 1e9);  // the loss that `larklane noise` reported for core
                                                 // 0
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

TEST(Statistics, TheIntervalCoversTheMedianAsOftenAsStated) {
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
