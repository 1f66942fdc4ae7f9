// Plans of groups: their cost, and the least one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "model/plan.hpp"
#include "model/readiness.hpp"

namespace larklane::model {
namespace {

Medium niagara(double per_part_ns = 0) {
  return {.network = {.latency_ns = 1000,
                      .send_overhead_ns = 200,
                      .recv_overhead_ns = 200,
                      .gap_ns = 250,
                      .gap_per_byte_ns = 1 / 11.5},
          .per_part_ns = per_part_ns};
}

TEST(ModelPlan, ExposedIsTheTimeAfterTheLastPartition) {
  const std::vector<std::vector<double>> rounds{{0, 0, 0, 9000}, {0, 0, 0, 1000}};
  const Workload workload{niagara(), 101, rounds};
  const LogGP& network = workload.medium.network;
  // Two groups: the late partition travels with its neighbour. One round waits, one doesn't.
  const std::uint32_t halves[] = {0, 2};
  EXPECT_NEAR(exposed_ns(workload, halves), network.message_ns(202), 1e-9);
  const std::uint32_t all[] = {0};
  EXPECT_NEAR(exposed_ns(workload, all), network.message_ns(404), 1e-9);
}

TEST(ModelPlan, EqualGroupsDifferByOnePartitionAtMost) {
  EXPECT_EQ(equal_groups(5, 1), std::vector<std::uint32_t>{0});
  EXPECT_EQ(equal_groups(5, 2), (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(equal_groups(5, 4), (std::vector<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(equal_groups(3, 3), (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST(ModelPlan, TheMeanOverAllRoundsDecides) {
  const auto best_count = [](const Medium& on, const std::vector<std::vector<double>>& rounds,
                             std::uint64_t partition_bytes) {
    return best_equal_plan({on, partition_bytes, rounds}).firsts.size();
  };
  // A late last partition wants many parts, all at once want few; the second round weighs more.
  const Medium medium{.network = {.gap_ns = 1000, .gap_per_byte_ns = 0.01}, .per_part_ns = 0};
  const std::vector<std::vector<double>> late{{0, 0, 0, 1e6}}, at_once{{0, 0, 0, 0}};
  const std::uint64_t bytes = 10000;
  EXPECT_EQ(best_count(medium, late, bytes), 4u);
  EXPECT_EQ(best_count(medium, at_once, bytes), 1u);
  EXPECT_EQ(best_count(medium, std::vector{late[0], at_once[0], at_once[0], at_once[0]}, bytes),
            1u);
}

/// The two rows of docs/design/model.md below the paper's: a laggard of 4 ms at 11.5 GB/s.
std::size_t best_with_laggard(double per_part_ns, std::uint64_t bytes) {
  const auto rounds = readiness(Pattern::laggard, 4e6, 32, 1, 0);
  return best_equal_plan({niagara(per_part_ns), bytes / 32, rounds}).firsts.size();
}

TEST(ModelPlan, ADelayHidesEverythingButThatCost) {
  for (std::uint64_t bytes = 64 << 10; bytes <= 32 << 20; bytes *= 2) {
    EXPECT_EQ(best_with_laggard(0, bytes), 32u) << bytes;
    EXPECT_EQ(best_with_laggard(15000, bytes), tabled_count(1 / 11.5, 15000, bytes, 32)) << bytes;
  }
  for (const double per_part_ns : {0.0, 15000.0}) {
    EXPECT_EQ(best_with_laggard(per_part_ns, 64 << 20), 4u);
    EXPECT_EQ(best_with_laggard(per_part_ns, 128 << 20), 2u);
  }
}

TEST(ModelPlan, ALaggardTravelsAlone) {
  const auto rounds = readiness(Pattern::laggard, 1e6, 16, 1, 0);
  const Plan plan = best_plan({niagara(15000), 1 << 16, rounds});
  EXPECT_EQ(plan.firsts, (std::vector<std::uint32_t>{0, 15}));
}

TEST(ModelPlan, PartitionsReadyAtOnceAreNotSplit) {
  const auto rounds = readiness(Pattern::simultaneous, 0, 16, 1, 0);
  EXPECT_EQ(best_plan({niagara(), 1 << 10, rounds}).firsts, std::vector<std::uint32_t>{0});
}

TEST(ModelPlan, OnePartitionIsOneGroup) {
  const std::vector<std::vector<double>> rounds{{5.0}};
  EXPECT_EQ(best_plan({niagara(), 8, rounds}).firsts, std::vector<std::uint32_t>{0});
}

/// Of all 2^(S - 1) ways.
double least_of_all(const Workload& workload) {
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t bits = 0; bits < 1u << (workload.partitions() - 1); ++bits) {
    std::vector<std::uint32_t> firsts{0};
    for (std::uint32_t i = 1; i < workload.partitions(); ++i)
      if ((bits >> (i - 1) & 1) != 0) firsts.push_back(i);
    least = std::min(least, exposed_ns(workload, firsts));
  }
  return least;
}

/// Exposed time over the least possible one, for many workloads.
std::vector<double> ratios_to_best(bool is_serial) {
  std::mt19937_64 random(21);
  std::vector<double> ratios;
  for (std::uint32_t round = 0; round < 300; ++round) {
    const auto pattern = static_cast<Pattern>(random() % 5);
    const std::uint64_t partition_bytes = std::uint64_t{1} << (6 + random() % 14);
    const double bytes_ns = 10.0 * static_cast<double>(partition_bytes) / 11.5;
    const double spread_ns = bytes_ns * std::exp2(static_cast<double>(random() % 9) - 4);
    const auto rounds = readiness(pattern, spread_ns, 10, 1 + round % 6, random());
    Medium medium = niagara(round % 2 == 0 ? 0 : 2000);
    medium.is_receiver_serial = is_serial;
    if (is_serial) medium.network.recv_overhead_ns = 3000;
    const Workload workload{medium, partition_bytes, rounds};
    const Plan plan = best_plan(workload);
    EXPECT_NEAR(plan.exposed_ns, exposed_ns(workload, plan.firsts), 1e-9);
    EXPECT_LE(plan.exposed_ns, best_equal_plan(workload).exposed_ns);
    ratios.push_back(plan.exposed_ns / least_of_all(workload));
  }
  std::ranges::sort(ratios);
  return ratios;
}

TEST(ModelPlan, IsNearlyTheBestOfAllGroups) {
  for (const bool is_serial : {false, true}) {
    const std::vector<double> ratios = ratios_to_best(is_serial);
    EXPECT_LT(ratios[ratios.size() * 95 / 100], 1 + 1e-9) << is_serial;
    EXPECT_LT(ratios.back(), 1.1) << is_serial;
  }
}

// The paper's figure 8 asks for it: its model, of equal groups, gained 1.38 where a table gained
// 2.13.
TEST(ModelPlan, IsAheadOfEqualGroupsWhereOneThreadIsLate) {
  for (const std::uint64_t bytes : {512u << 10, 1u << 20, 4u << 20}) {
    const auto rounds = readiness(Pattern::laggard, 4e5, 32, 1, 0);
    const Workload workload{niagara(11000), bytes / 32, rounds};
    EXPECT_LT(best_plan(workload).exposed_ns, 0.8 * best_equal_plan(workload).exposed_ns) << bytes;
  }
}

/// On rounds that it has not seen, over the best equal groups for these; mean over some seeds. 1
/// MiB in 32 partitions.
template <class Planner>
double on_other_rounds(Planner planner, Pattern pattern, double spread_ns, std::uint32_t seen) {
  constexpr std::uint32_t kSeeds = 6;
  const auto others = readiness(pattern, spread_ns, 32, 300, 7);
  const Workload working{niagara(1000), 1 << 15, others};
  double sum = 0;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const auto rounds = readiness(pattern, spread_ns, 32, seen, 1000 * seed + seen);
    sum += exposed_ns(working, planner({niagara(1000), 1 << 15, rounds}).firsts);
  }
  return sum / kSeeds / best_equal_plan(working).exposed_ns;
}

TEST(ModelPlan, ChanceIsNotLearnt) {
  for (const Pattern pattern : {Pattern::uniform, Pattern::gaussian, Pattern::exponential}) {
    EXPECT_GT(on_other_rounds(best_plan, pattern, 4e5, 4), 1.2);
    EXPECT_GT(on_other_rounds(best_plan, pattern, 4e5, 8), 1.1);
    EXPECT_LT(on_other_rounds(learned_plan, pattern, 4e5, 4), 1.35);
    for (const std::uint32_t seen : {8u, 16u, 64u})
      EXPECT_LT(on_other_rounds(learned_plan, pattern, 4e5, seen), 1.006) << seen;
  }
}

TEST(ModelPlan, SystematicDelaysAreLearnt) {
  EXPECT_LT(on_other_rounds(learned_plan, Pattern::laggard, 4e5, 2), 0.31);
  // All are ready within the time of one message: fewer and larger groups first.
  EXPECT_LT(on_other_rounds(learned_plan, Pattern::uniform, 2e4, 8), 0.96);
  // One round does not suffice to predict the next.
  const auto one = readiness(Pattern::laggard, 4e5, 32, 1, 0);
  const Workload workload{niagara(1000), 1 << 15, one};
  EXPECT_EQ(learned_plan(workload).firsts, best_equal_plan(workload).firsts);
}

TEST(ModelPlan, AHundredPartitionsAreNoHardship) {
  const auto rounds = readiness(Pattern::gaussian, 1e5, 128, 16, 3);
  const Workload workload{niagara(1000), 1 << 14, rounds};
  EXPECT_LT(best_plan(workload).exposed_ns, best_equal_plan(workload).exposed_ns);
}

// 100 ns a copy and 1 ns a byte, 50 bytes a partition. Thread 0 has partitions 0 and 1 ready at 0
// and 10, thread 1 has 2 and 3 at 0 and 300.
TEST(ModelPlan, OfCopiesIsDelayedByThemByHand) {
  const std::vector<std::vector<double>> ready{{0, 10, 0, 300}};
  const std::vector<std::vector<std::uint32_t>> threads{{0, 0, 1, 1}};
  const Workload copies{{.network = {.latency_ns = 100, .gap_per_byte_ns = 1}}, 51, ready, threads};
  // One group: thread 1 copies all of it, 100 + 203.
  EXPECT_DOUBLE_EQ(exposed_ns(copies, std::vector<std::uint32_t>{0}), 303);
  // Two: thread 0 is done at 10 + 201, thread 1 at 300 + 201.
  EXPECT_DOUBLE_EQ(exposed_ns(copies, std::vector<std::uint32_t>{0, 2}), 201);
  // Each by itself: thread 1 copies 2 at 0 and is at 300 + 150 when it has 3, which takes 150 more.
  EXPECT_DOUBLE_EQ(exposed_ns(copies, std::vector<std::uint32_t>{0, 1, 2, 3}), 300);
  // Thread 0 completes and copies the first three, 10 + 252, while thread 1 has one left: 300 +
  // 150.
  EXPECT_DOUBLE_EQ(exposed_ns(copies, std::vector<std::uint32_t>{0, 3}), 150);
  EXPECT_EQ(best_plan(copies).firsts, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_DOUBLE_EQ(exposed_ns(copies.round(0), std::vector<std::uint32_t>{0}), 303);
}

}  // namespace
}  // namespace larklane::model
