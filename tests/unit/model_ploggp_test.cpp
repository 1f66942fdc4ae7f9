// Completion times by PLogGP.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "model/ploggp.hpp"
#include "model/readiness.hpp"

namespace larklane::model {
namespace {

constexpr std::uint64_t kKi = 1 << 10, kMi = 1 << 20;

Medium by_hand() {
  return {.network = {.latency_ns = 1000,
                      .send_overhead_ns = 300,
                      .recv_overhead_ns = 400,
                      .gap_ns = 500,
                      .gap_per_byte_ns = 0.1}};
}

/// `count` parts of 101 bytes, ready when `ready_of` says.
template <class ReadyOf>
std::vector<Part> parts(std::uint32_t count, std::uint64_t bytes, ReadyOf ready_of) {
  std::vector<Part> made;
  for (std::uint32_t i = 0; i < count; ++i) made.push_back({ready_of(i), bytes});
  return made;
}

TEST(ModelPLogGP, MatchesThePaperForOnePartAndForTwo) {
  const auto at_once = [](std::uint32_t) { return 0.0; };
  // o_s + G (k - 1) + L + o_r; o_s + 2 G (k - 1) + max(g, o_s, o_r) + L + o_r
  EXPECT_DOUBLE_EQ(completion_ns(by_hand(), parts(1, 101, at_once)), 300 + 10 + 1000 + 400);
  EXPECT_DOUBLE_EQ(completion_ns(by_hand(), parts(2, 101, at_once)), 300 + 20 + 500 + 1000 + 400);
}

TEST(ModelPLogGP, MatchesTheRecurrenceByHand) {
  // Begins: 300; max(2000 + 300, 300 + 510) = 2300; max(2100 + 300, 2300 + 510) = 2810.
  const Part any_order[] = {{2100, 101}, {0, 101}, {2000, 101}};
  Medium medium = by_hand();
  EXPECT_DOUBLE_EQ(completion_ns(medium, any_order), 2810 + 10 + 1000 + 400);
  medium.is_receiver_serial = true;
  EXPECT_DOUBLE_EQ(completion_ns(medium, any_order), 4220 + 2 * 400);
  medium.per_part_ns = 7;
  EXPECT_DOUBLE_EQ(completion_ns(medium, any_order), 4220 + 2 * 400 + 3 * 7);
  // A part waits for the part before it: 300; 300 + 100 + 500; 900 + 200 + 500.
  const Part unequal[] = {{0, 1001}, {10, 2001}, {20, 101}};
  EXPECT_DOUBLE_EQ(completion_ns(by_hand(), unequal), 1600 + 10 + 1000 + 400);
}

TEST(ModelPLogGP, TheGapBetweenTwoPartsIsTheSlowestOfTheThree) {
  const auto at_once = [](std::uint32_t) { return 0.0; };
  Medium medium = by_hand();
  medium.network.send_overhead_ns = 800;
  EXPECT_DOUBLE_EQ(completion_ns(medium, parts(2, 101, at_once)), 800 + 20 + 800 + 1000 + 400);
  medium = by_hand();
  medium.network.recv_overhead_ns = 900;
  EXPECT_DOUBLE_EQ(completion_ns(medium, parts(2, 101, at_once)), 300 + 20 + 900 + 1000 + 900);
  medium = by_hand();
  medium.network.send_overhead_per_byte_ns = 2;  // 500 for 101 bytes, and the wire's 10 are less
  medium.network.send_overhead_ns = 400;
  EXPECT_DOUBLE_EQ(completion_ns(medium, parts(2, 101, at_once)), 400 + 600 + 210 + 1000 + 400);
}

TEST(ModelPLogGP, QueuesInjectSideBySideAndShareTheWire) {
  const Part at_once[] = {{0, 2001}, {0, 2001}, {0, 2001}};
  // One queue: 300, 300 + 200 + 500, 1700. Two: 300, 500, 1000. Three: 300, 500, 700.
  EXPECT_DOUBLE_EQ(completion_on_queues_ns(by_hand(), at_once, 1), 1700 + 200 + 1400);
  EXPECT_DOUBLE_EQ(completion_on_queues_ns(by_hand(), at_once, 2), 1000 + 200 + 1400);
  EXPECT_DOUBLE_EQ(completion_on_queues_ns(by_hand(), at_once, 3), 700 + 200 + 1400);
  // Late, and unequal: 300; 5300; its queue is free at 1100.
  const Part late[] = {{0, 2001}, {5000, 101}, {5000, 301}};
  EXPECT_DOUBLE_EQ(completion_on_queues_ns(by_hand(), late, 2), 5310 + 30 + 1400);
}

TEST(ModelPLogGP, CopiesAreTheThreadsOwnTimeAndShareTheMedium) {
  const Copying medium{.per_copy_ns = 100, .per_byte_ns = 1, .medium_byte_ns = 0, .latency_ns = 50};
  // One thread: 0 to 300, then 300 to 600. Two: both end at 300.
  const CopiedPart one[] = {{{0, 200}, 0}, {{10, 200}, 0}}, two[] = {{{0, 200}, 0}, {{0, 200}, 1}};
  EXPECT_DOUBLE_EQ(completion_by_copies_ns(medium, one), 650);
  EXPECT_DOUBLE_EQ(completion_by_copies_ns(medium, two), 350);
  const CopiedPart late[] = {{{0, 200}, 0}, {{1000, 200}, 1}};
  EXPECT_DOUBLE_EQ(completion_by_copies_ns(medium, late), 1350);
  const CopiedPart long_first[] = {{{0, 2000}, 0}, {{10, 200}, 1}};
  EXPECT_DOUBLE_EQ(completion_by_copies_ns(medium, long_first), 2150);
  Copying shared = medium;
  shared.medium_byte_ns = 1;  // as much as one thread takes
  EXPECT_DOUBLE_EQ(completion_by_copies_ns(shared, two), 550);
  EXPECT_DOUBLE_EQ(completion_by_copies_ns(shared, one), 650);
  // A thread that was held up by the other begins its next part later: 300, 500, then 500 + 300.
  const CopiedPart held_up[] = {{{0, 200}, 0}, {{0, 200}, 1}, {{0, 200}, 1}};
  EXPECT_DOUBLE_EQ(completion_by_copies_ns(shared, held_up), 850);
}

TEST(ModelPLogGP, CopiesDoNotDependOnTheOrderOfTheList) {
  const Copying medium{.per_copy_ns = 0, .per_byte_ns = 1, .medium_byte_ns = 0.25, .latency_ns = 0};
  std::vector<CopiedPart> blocks;
  for (std::uint32_t i = 0; i < 16; ++i) blocks.push_back({{0, 1000}, i / 4});
  EXPECT_DOUBLE_EQ(completion_by_copies_ns(medium, blocks), 4000);
  std::mt19937_64 random(12);
  for (CopiedPart& each : blocks)
    each.part = {static_cast<double>(random() % 500), 500 + random() % 1000};
  const double before = completion_by_copies_ns(medium, blocks);
  for (int round = 0; round < 20; ++round) {
    std::ranges::shuffle(blocks, random);
    ASSERT_DOUBLE_EQ(completion_by_copies_ns(medium, blocks), before);
  }
}

TEST(ModelPLogGP, ClosedFormsAreTheRecurrence) {
  std::mt19937_64 random(11);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    const Medium medium{.network = {.latency_ns = between(0, 5000),
                                    .send_overhead_ns = between(0, 1000),
                                    .recv_overhead_ns = between(0, 1000),
                                    .gap_ns = between(0, 2000),
                                    .gap_per_byte_ns = between(0, 1)},
                        .per_part_ns = between(0, 10000),
                        .is_receiver_serial = random() % 2 == 0};
    const auto count = static_cast<std::uint32_t>(1 + random() % 64);
    const std::uint64_t bytes = random() % 100000;
    const double delay = between(0, 1e6);
    const LogGP& p = medium.network;
    const double wire = p.gap_per_byte_ns * static_cast<double>(bytes > 0 ? bytes - 1 : 0);
    const double s = wire + std::max({p.gap_ns, p.send_overhead_ns, p.recv_overhead_ns});
    const double n = count;
    const double one = p.send_overhead_ns + wire + p.latency_ns + p.recv_overhead_ns +
                       (medium.is_receiver_serial ? (n - 1) * p.recv_overhead_ns : 0) +
                       n * medium.per_part_ns;
    const auto expect_equal = [&](double closed, double further, auto ready_of, const char* what) {
      const double recurrence = completion_ns(medium, parts(count, bytes, ready_of));
      ASSERT_NEAR(closed, recurrence, 1e-9 * recurrence) << what << " of " << count;
      ASSERT_NEAR(one + further, recurrence, 1e-9 * recurrence) << what << " of " << count;
    };
    expect_equal(
        closed_form::simultaneous_ns(medium, count, bytes), (n - 1) * s, [](auto) { return 0.0; },
        "simultaneous");
    expect_equal(
        closed_form::many_before_one_ns(medium, count, bytes, delay), std::max(delay, (n - 1) * s),
        [&](auto i) { return i + 1 == count ? delay : 0; }, "many before one");
    expect_equal(
        closed_form::one_before_many_ns(medium, count, bytes, delay),
        count > 1 ? std::max(delay, s) + (n - 2) * s : 0, [&](auto i) { return i > 0 ? delay : 0; },
        "one before many");
    expect_equal(
        closed_form::uniform_ns(medium, count, bytes, delay / 64),
        (n - 1) * std::max(delay / 64, s), [&](auto i) { return i * delay / 64; }, "uniform");
    if (count > 1) {
      const auto early = static_cast<std::uint32_t>(1 + random() % (count - 1));
      expect_equal(
          closed_form::two_groups_ns(medium, count, early, bytes, delay),
          std::max(delay, early * s) + (n - early - 1) * s,
          [&](auto i) { return i >= early ? delay : 0; }, "two groups");
    }
  }
}

TEST(ModelPLogGP, BestIsTheSmallestOfEquals) {
  const auto cost_of = [](std::vector<double> costs) {
    return [costs](std::uint32_t count) { return costs[count]; };
  };
  EXPECT_EQ(best_power_of_two(1, cost_of({0, 3})), 1u);
  EXPECT_EQ(best_power_of_two(4, cost_of({0, 3, 2, 0, 2})), 2u);
  EXPECT_EQ(best_power_of_two(3, cost_of({0, 3, 2, 0})), 2u);
  EXPECT_EQ(best_power_of_two(4, cost_of({0, 3, 4, 0, 2})), 4u);
}

/// Table I of the paper, read as docs/design/model.md says.
std::uint32_t printed(std::uint64_t bytes) {
  if (bytes <= 256 * kKi) return 1;
  if (bytes <= 1 * kMi) return 2;
  if (bytes <= 4 * kMi) return 4;
  if (bytes <= 16 * kMi) return 8;
  return bytes <= 64 * kMi ? 16 : 32;
}

TEST(ModelPLogGP, TableOneFollowsFromACostOfEachPart) {
  std::mt19937_64 random(13);
  const double gap_per_byte_ns = 1 / 11.5;
  for (int round = 0; round < 1000; ++round) {
    const double equal_bytes =
        std::uniform_real_distribution<double>(128.0 * kKi, 256.0 * kKi)(random);
    for (std::uint64_t bytes = 1; bytes <= 128 * kMi; bytes *= 2)
      ASSERT_EQ(tabled_count(gap_per_byte_ns, equal_bytes * gap_per_byte_ns, bytes, 32),
                printed(bytes))
          << bytes << " bytes, c / G " << equal_bytes;
  }
  for (const double outside : {127.0 * kKi, 257.0 * kKi}) {
    bool differs = false;
    for (std::uint64_t bytes = 1; bytes <= 128 * kMi; bytes *= 2)
      differs |=
          tabled_count(gap_per_byte_ns, outside * gap_per_byte_ns, bytes, 32) != printed(bytes);
    EXPECT_TRUE(differs) << outside;
  }
}

TEST(ModelPLogGP, NaNIsNoLeastCost) {
  EXPECT_EQ(best_power_of_two(8, [](std::uint32_t) { return std::nan(""); }), 1u);
}

TEST(ModelPLogGP, TheModelFallsBackToTheProgramsPartitions) {
  EXPECT_EQ(tabled_count(1 / 11.5, 16000, 128 * kMi, 8), 8u);
  EXPECT_EQ(tabled_count(1 / 11.5, 16000, 128 * kMi, 6), 4u);
}

TEST(ModelReadiness, TheSameSeedGivesTheSameTimes) {
  for (const Pattern pattern : {Pattern::simultaneous, Pattern::laggard, Pattern::uniform,
                                Pattern::gaussian, Pattern::exponential}) {
    const auto first = readiness(pattern, 100, 8, 50, 42);
    EXPECT_EQ(first, readiness(pattern, 100, 8, 50, 42));
    const bool has_chance = pattern != Pattern::simultaneous && pattern != Pattern::laggard;
    EXPECT_EQ(first != readiness(pattern, 100, 8, 50, 43), has_chance);
    for (const auto& round : first)
      for (const double time : round) ASSERT_GE(time, 0);
  }
}

TEST(ModelReadiness, PatternsMatchTheirNames) {
  EXPECT_EQ(readiness(Pattern::laggard, 100, 4, 1, 0)[0], (std::vector<double>{0, 0, 0, 100}));
  const auto mean_and_deviation = [](Pattern pattern) {
    double sum = 0, squares = 0;
    const auto rounds = readiness(pattern, 100, 10, 10000, 1);
    for (const auto& round : rounds)
      for (const double time : round) sum += time, squares += time * time;
    const double mean = sum / 1e5;
    return std::pair(mean, std::sqrt(squares / 1e5 - mean * mean));
  };
  EXPECT_NEAR(mean_and_deviation(Pattern::uniform).first, 50, 1);
  EXPECT_NEAR(mean_and_deviation(Pattern::uniform).second, 100 / std::sqrt(12.0), 1);
  EXPECT_NEAR(mean_and_deviation(Pattern::gaussian).first, 400, 2);
  EXPECT_NEAR(mean_and_deviation(Pattern::gaussian).second, 100, 2);
  EXPECT_NEAR(mean_and_deviation(Pattern::exponential).first, 100, 2);
  EXPECT_NEAR(mean_and_deviation(Pattern::exponential).second, 100, 2);
}

TEST(ModelReadiness, NamesAreThoseOfThePatterns) {
  EXPECT_EQ(pattern_named("laggard"), Pattern::laggard);
  EXPECT_EQ(pattern_named("exponential"), Pattern::exponential);
  EXPECT_EQ(pattern_named("Laggard"), std::nullopt);
  EXPECT_EQ(pattern_named(""), std::nullopt);
}

}  // namespace
}  // namespace larklane::model
