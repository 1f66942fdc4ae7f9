// Parameters of a network, found from the runs of rounds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "model/plan.hpp"
#include "model/readiness.hpp"
#include "model/runs.hpp"

namespace larklane::model {
namespace {

using Rounds = std::vector<std::vector<SeenRun>>;

/// Runs of `bytes` each, handed to the network at `ready_ns`, on a network with known L, h and G.
std::vector<SeenRun> runs_of(const LogGP& network, std::uint64_t bytes,
                             std::vector<double> ready_ns, std::mt19937_64* noise = nullptr) {
  std::ranges::sort(ready_ns);
  std::vector<SeenRun> runs;
  double injected = -1e300;
  for (const double ready : ready_ns) {
    const double begin = std::max(ready, injected);
    injected = begin + network.gap_ns + network.bytes_ns(bytes);
    double end = begin + network.latency_ns + network.bytes_ns(bytes);
    if (noise != nullptr) end += std::normal_distribution(0.0, 0.01 * (end - begin))(*noise);
    runs.push_back({bytes, ready, end});
  }
  return runs;
}

void expect_near(const LogGP& found, const LogGP& network, double share) {
  EXPECT_NEAR(found.latency_ns, network.latency_ns, share * network.latency_ns);
  EXPECT_NEAR(found.gap_ns, network.gap_ns, share * network.gap_ns);
  EXPECT_NEAR(found.gap_per_byte_ns, network.gap_per_byte_ns, share * network.gap_per_byte_ns);
}

constexpr LogGP kNetwork{.latency_ns = 2000, .gap_ns = 700, .gap_per_byte_ns = 0.1};

TEST(ModelRuns, AreExactWithoutNoise) {
  const Rounds rounds{runs_of(kNetwork, 80'001, {0}), runs_of(kNetwork, 20'001, {0, 0, 0, 0}),
                      runs_of(kNetwork, 40'001, {0, 1e6})};
  const auto found = fit_runs(rounds);
  ASSERT_TRUE(found);
  // L and h are held together where no run separates them, by one part in a million.
  expect_near(*found, kNetwork, 1e-5);
}

TEST(ModelRuns, FollowAsLongAsTheOneBeforeIsOnItsWay) {
  // 2000 + 0.1 * 1000 for the first. The second is handed over while the first travels, and ends
  // 700 + 100 after it; the third when the network is idle.
  const Rounds rounds{{{1001, 0, 2100}, {1001, 50, 2900}, {1001, 5000, 7100}},
                      {{2001, 0, 2200}, {2001, 0, 3100}}};
  const auto found = fit_runs(rounds);
  ASSERT_TRUE(found);
  expect_near(*found, kNetwork, 1e-5);
}

TEST(ModelRuns, OfOneKindDoNotSeparateLFromH) {
  const Rounds rounds{runs_of(kNetwork, 80'001, {0}), runs_of(kNetwork, 40'001, {0, 1e6})};
  const auto found = fit_runs(rounds);
  ASSERT_TRUE(found);
  expect_near(*found, {.latency_ns = 2000, .gap_ns = 2000, .gap_per_byte_ns = 0.1}, 1e-5);
}

TEST(ModelRuns, OfOneSizeDetermineNothing) {
  EXPECT_FALSE(fit_runs(Rounds{runs_of(kNetwork, 1024, {0, 0, 1e6})}));
  EXPECT_FALSE(fit_runs(Rounds{}));
  EXPECT_FALSE(fit_runs(Rounds{{{1024, 5, 5}, {2048, 9, 9}}})) << "no time passed";
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  constexpr double kEver = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(fit_runs(Rounds{{{1024, 0, kNone}, {2048, 0, kEver}}}));
  EXPECT_FALSE(fit_runs(Rounds{{{0, 0, 5}, {1, 100, 105}}})) << "no further bytes";
}

TEST(ModelRuns, AreNeverNegative) {
  const auto falling = fit_runs(Rounds{{{1000, 0, 500}, {64'000, 1000, 1400}}});
  ASSERT_TRUE(falling);
  EXPECT_EQ(falling->gap_per_byte_ns, 0);
  EXPECT_NEAR(falling->latency_ns, 450, 50);
  const auto steep = fit_runs(Rounds{{{1000, 0, 10}, {64'000, 1000, 9000}}});
  ASSERT_TRUE(steep);
  EXPECT_EQ(steep->latency_ns, 0);
  EXPECT_GT(steep->gap_per_byte_ns, 0);
}

// The purpose of the model: plans by the found parameters cost as much as plans by the true ones.
TEST(ModelRuns, MakePlansAsGoodAsTheNetworkItself) {
  std::mt19937_64 random(7);
  for (const std::uint64_t bytes : {4ull << 10, 256ull << 10, 4ull << 20, 64ull << 20}) {
    constexpr std::uint32_t kPartitions = 32;
    const auto seen = readiness(Pattern::gaussian, 1e5, kPartitions, 8, bytes);
    Rounds rounds;
    for (const std::uint32_t count : {1u, 2u, 4u, 8u, 16u, 32u}) {
      std::vector<double> ready(count, 0);
      rounds.push_back(runs_of(kNetwork, bytes / count, ready, &random));
    }
    const auto found = fit_runs(rounds);
    ASSERT_TRUE(found);
    const Workload truth{{.network = kNetwork}, bytes / kPartitions, seen};
    const Workload fitted{{.network = *found}, bytes / kPartitions, seen};
    const Plan plan = best_equal_plan(fitted);
    EXPECT_LE(exposed_ns(truth, plan.firsts), 1.05 * best_equal_plan(truth).exposed_ns) << bytes;
  }
}

}  // namespace
}  // namespace larklane::model
