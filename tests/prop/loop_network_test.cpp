// The engine's direct mode on a simulated network against LogGP's closed forms, to the picosecond;
// and the baseline against times that are counted by hand.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "model/ploggp.hpp"
#include "model/readiness.hpp"
#include "net/loop/random.hpp"
#include "sim/scenario.hpp"
#include "simulated_round.hpp"

namespace larklane::sim {
namespace {

using loop::Random;

constexpr std::uint64_t kNs = 1000;  // in picoseconds

std::vector<std::uint32_t> equal_boundaries(std::uint32_t partitions, std::uint32_t groups) {
  std::vector<std::uint32_t> firsts;
  for (std::uint32_t g = 0; g < groups; ++g)
    firsts.push_back(static_cast<std::uint32_t>(std::uint64_t{g} * partitions / groups));
  return firsts;
}

/// Every partition is a group and has a thread; nothing costs anything but the network.
Scenario scenario_of(std::uint32_t partitions, const loop::NetworkCosts& network,
                     std::uint64_t bytes) {
  Scenario scenario;
  scenario.partitions = scenario.threads = partitions;
  scenario.partition_bytes = bytes;
  scenario.plans = {equal_boundaries(partitions, partitions)};
  scenario.network = network;
  scenario.processor = loop::kFreeCosts;
  return scenario;
}

loop::NetworkCosts random_network(Random& random) {
  return {.latency_ps = random.below(2000 * kNs),
          .send_overhead_ps = random.below(400 * kNs),
          .recv_overhead_ps = random.below(400 * kNs),
          .gap_ps = random.below(400 * kNs),
          .byte_ps = random.below(300)};
}

/// The same in the model, which counts in picoseconds here so that all its numbers are whole.
model::Medium medium_of(const Scenario& scenario) {
  const loop::NetworkCosts& network = scenario.network;
  return {.network = {.latency_ns = static_cast<double>(network.latency_ps),
                      .send_overhead_ns = static_cast<double>(network.send_overhead_ps),
                      .recv_overhead_ns = static_cast<double>(network.recv_overhead_ps),
                      .gap_ns = static_cast<double>(network.gap_ps),
                      .gap_per_byte_ns = static_cast<double>(network.byte_ps)},
          .is_receiver_serial = scenario.is_receiver_late};
}

void expect_equal(const Scenario& scenario, double model_ps, const char* what) {
  EXPECT_EQ(static_cast<double>(round_of(scenario).total_ps), model_ps)
      << what << ": " << scenario.partitions << " partitions of " << scenario.partition_bytes
      << ", L " << scenario.network.latency_ps << ", o_s " << scenario.network.send_overhead_ps
      << ", o_r " << scenario.network.recv_overhead_ps << ", g " << scenario.network.gap_ps
      << ", G " << scenario.network.byte_ps << ", seed " << scenario.seed;
}

TEST(LoopNetwork, ClosedFormsToThePicosecond) {
  namespace closed = model::closed_form;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed);
    const auto count = static_cast<std::uint32_t>(2 + random.below(random.one_in(4) ? 70 : 12));
    Scenario scenario = scenario_of(count, random_network(random), 1 + random.below(1 << 16));
    scenario.seed = seed;
    scenario.is_receiver_late = random.one_in(2);
    const std::uint64_t bytes = scenario.partition_bytes;
    const std::uint64_t delay = random.below(random.one_in(2) ? 10'000 * kNs : 1000 * kNs);
    const auto early = static_cast<std::uint32_t>(1 + random.below(count - 1));
    const model::Medium medium = medium_of(scenario);
    const auto delay_ps = static_cast<double>(delay);

    std::vector<std::uint64_t> ready(count, 0);
    const auto expect = [&](double model_ps, const char* what) {
      scenario.ready_ps = {ready};
      expect_equal(scenario, model_ps, what);
    };
    expect(closed::simultaneous_ns(medium, count, bytes), "simultaneous");
    ready[random.below(count)] = delay;
    expect(closed::many_before_one_ns(medium, count, bytes, delay_ps), "many before one");
    ready.assign(count, delay);
    ready[random.below(count)] = 0;
    expect(closed::one_before_many_ns(medium, count, bytes, delay_ps), "one before many");
    for (std::uint32_t p = 0; p < count; ++p) ready[p] = p < early ? 0 : delay;
    expect(closed::two_groups_ns(medium, count, early, bytes, delay_ps), "two groups");
    for (std::uint32_t p = 0; p < count; ++p) ready[p] = p * delay;
    expect(closed::uniform_ns(medium, count, bytes, delay_ps), "uniform");
  }
}

/// Groups of any sizes; each is ready with the last of its partitions.
std::vector<model::Part> parts_of(const Scenario& scenario) {
  std::vector<model::Part> parts;
  const std::vector<std::uint32_t>& firsts = scenario.plans.back();
  for (std::size_t g = 0; g < firsts.size(); ++g) {
    const std::uint32_t first = firsts[g];
    const std::uint32_t end = g + 1 < firsts.size() ? firsts[g + 1] : scenario.partitions;
    const auto& ready = scenario.ready_ps.back();
    const auto begin = ready.begin() + first;
    const std::uint64_t last = *std::max_element(begin, ready.begin() + end);
    parts.push_back({static_cast<double>(last), (end - first) * scenario.partition_bytes});
  }
  return parts;
}

std::vector<std::uint32_t> random_boundaries(Random& random, std::uint32_t partitions) {
  std::vector<std::uint32_t> firsts{0};
  const std::uint64_t density = 1 + random.below(6);
  for (std::uint32_t p = 1; p < partitions; ++p)
    if (random.one_in(density)) firsts.push_back(p);
  return firsts;
}

Scenario random_scenario(Random& random) {
  const auto count = static_cast<std::uint32_t>(1 + random.below(random.one_in(4) ? 100 : 20));
  Scenario scenario = scenario_of(count, random_network(random), 1 + random.below(1 << 14));
  scenario.plans = {random_boundaries(random, count)};
  const std::uint64_t spread = 1 + random.below(random.one_in(2) ? 20'000 * kNs : 1000 * kNs);
  scenario.ready_ps.emplace_back();
  for (std::uint32_t p = 0; p < count; ++p) scenario.ready_ps[0].push_back(random.below(spread));
  scenario.seed = random.next();
  return scenario;
}

TEST(LoopNetwork, TheRecurrenceToThePicosecondForAnyReadinessAndGroups) {
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    Random random(seed);
    Scenario scenario = random_scenario(random);
    scenario.is_receiver_late = random.one_in(2);
    expect_equal(scenario, model::completion_ns(medium_of(scenario), parts_of(scenario)),
                 "recurrence");
    EXPECT_EQ(round_of(scenario).transfers, scenario.plans.back().size());
  }
}

/// As the engine does it, the groups of a round are known one round before.
TEST(LoopNetwork, GroupsMayChangeWithEveryRound) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    Scenario scenario = random_scenario(random);
    const std::vector<std::uint64_t> ready = scenario.ready_ps.front();
    std::vector<double> expected;
    for (int round = 0; round < 5; ++round) {
      expected.push_back(model::completion_ns(medium_of(scenario), parts_of(scenario)));
      if (round < 3) scenario.plans.push_back(random_boundaries(random, scenario.partitions));
    }
    scenario.ready_ps.assign(5, ready);
    auto outcome = simulate(scenario);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->failure, "");
    ASSERT_EQ(outcome->rounds.size(), 5u);
    for (std::size_t round = 0; round < 5; ++round)
      EXPECT_EQ(static_cast<double>(outcome->rounds[round].total_ps), expected[round]) << round;
  }
}

constexpr loop::NetworkCosts kEdr{.latency_ps = 600'000,
                                  .send_overhead_ps = 75'000,
                                  .recv_overhead_ps = 75'000,
                                  .gap_ps = 0,
                                  .byte_ps = 87};

/// Mean of the last half.
double exposed_ps(const Scenario& scenario) {
  auto outcome = simulate(scenario);
  EXPECT_EQ(outcome->failure, "");
  const std::vector<Round>& rounds = outcome->rounds;
  double sum = 0;
  for (std::size_t r = rounds.size() / 2; r < rounds.size(); ++r)
    sum += static_cast<double>(rounds[r].exposed_ps);
  return sum / static_cast<double>(rounds.size() - rounds.size() / 2);
}

/// The engine's learner, on virtual time.
TEST(LoopNetwork, LearnedGroupsComeNearTheBestEqualOnes) {
  using model::Pattern;
  for (const Pattern pattern : {Pattern::simultaneous, Pattern::laggard, Pattern::uniform})
    for (const std::uint64_t bytes : {2ull << 10, 32ull << 10, 512ull << 10}) {
      Scenario scenario = scenario_of(16, kEdr, bytes);
      scenario.processor = {};
      scenario.ready_ps = ready_ps(model::readiness(pattern, 400'000, 16, 100, 1));
      double best = 0, bulk = 0;
      for (std::uint32_t groups = 1; groups <= 16; groups *= 2) {
        scenario.plans = {equal_boundaries(16, groups)};
        const double exposed = exposed_ps(scenario);
        if (groups == 1) best = bulk = exposed;
        best = std::min(best, exposed);
      }
      scenario.plans = {{0}};
      scenario.policy = "learned";
      const double learned = exposed_ps(scenario);
      EXPECT_LE(learned, 1.15 * best) << static_cast<int>(pattern) << ' ' << bytes;
      EXPECT_LE(learned, 1.03 * bulk) << static_cast<int>(pattern) << ' ' << bytes;
    }
}

/// Queues inject side by side, so that completions may come faster than one receiver takes them:
/// the model has no such receiver, and o_r is 0 here.
TEST(LoopNetwork, TheRecurrenceOnQueuesToThePicosecond) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Random random(seed);
    Scenario scenario = random_scenario(random);
    scenario.network.recv_overhead_ps = 0;
    scenario.network.queues = static_cast<std::uint32_t>(1 + random.below(6));
    expect_equal(scenario,
                 model::completion_on_queues_ns(medium_of(scenario), parts_of(scenario),
                                                scenario.network.queues),
                 "queues");
  }
}

/// A thread that computes several partitions posts, and computes on.
TEST(LoopNetwork, FewerThreadsThanPartitions) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    Scenario scenario = random_scenario(random);
    scenario.threads = static_cast<std::uint32_t>(1 + random.below(scenario.partitions));
    // In each thread's order, and each with time enough to post the one before.
    auto& ready = scenario.ready_ps.front();
    std::sort(ready.begin(), ready.end());
    for (std::uint32_t p = 0; p < scenario.partitions; ++p)
      ready[p] += p * scenario.network.injection_ps();
    expect_equal(scenario, model::completion_ns(medium_of(scenario), parts_of(scenario)),
                 "threads");
  }
}

Scenario noisy(std::uint64_t seed, bool two_sided) {
  Scenario scenario;
  scenario.partitions = 32;
  scenario.threads = 8;
  scenario.partition_bytes = 3000;
  scenario.plans = {{0, 1, 7, 20}};
  scenario.network = {.latency_ps = 600'000,
                      .send_overhead_ps = 120'000,
                      .recv_overhead_ps = 50'000,
                      .gap_ps = 0,
                      .byte_ps = 87};
  scenario.seed = seed;
  if (two_sided)
    scenario.two_sided = TwoSidedCosts{.request_ps = 200'000,
                                       .match_ps = 100'000,
                                       .copy_byte_ps = 164,
                                       .zero_copy_from_bytes = 1 << 10,
                                       .rendezvous_from_bytes = seed % 2 == 0 ? 1u << 20 : 2048u};
  scenario.ready_ps =
      ready_ps(model::readiness(model::Pattern::exponential, 2000, 32, 20, scenario.seed));
  return scenario;
}

TEST(LoopNetwork, TheSameSeedGivesTheSameBytesAnotherOthers) {
  for (const bool two_sided : {false, true})
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const std::string once = text_of(noisy(seed, two_sided));
      // The result must not depend on addresses: neither copy is where the first one was.
      const std::vector<std::byte> in_between(seed * 1000);
      EXPECT_EQ(once, text_of(noisy(seed, two_sided))) << "seed " << seed;
      EXPECT_NE(once, text_of(noisy(seed + 1, two_sided))) << "seed " << seed;
      EXPECT_EQ(std::count(once.begin(), once.end(), '\n'), 20);
    }
}

TEST(LoopNetwork, TheSeedOrdersThreadsThatAreReadyAtOnce) {
  std::set<std::string> outcomes;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario scenario = noisy(seed, false);
    scenario.threads = 32;
    scenario.ready_ps.assign(1, std::vector<std::uint64_t>(32, 0));
    outcomes.insert(text_of(scenario));
    EXPECT_EQ(text_of(scenario), text_of(scenario));
  }
  EXPECT_GT(outcomes.size(), 1u);
}

TEST(LoopNetwork, ProcessorsCostAsTheirTableStates) {
  // Four threads mark one word at the same time: its line comes to each in turn. The last one
  // posts, for which the line of the queue's lock comes; the receiver fetches the line of arrival
  // marks, that of the count is its own since its first look.
  Scenario scenario = scenario_of(4, {.latency_ps = 600'000, .send_overhead_ps = 100'000}, 1);
  scenario.plans = {{0}};
  scenario.ready_ps = {{0, 0, 0, 0}};
  scenario.processor.line_transfer_ps = 50'000;
  EXPECT_EQ(round_of(scenario).total_ps, (4 + 1) * 50'000u + 100'000 + 600'000 + 50'000);
  // In groups of their own all post, and the lock is handed over. The receiver has its lines since
  // the first arrival.
  scenario.plans = {{0, 1, 2, 3}};
  EXPECT_EQ(round_of(scenario).total_ps,
            (1 + 1) * 50'000u + 3 * (100'000 + 50'000) + 100'000 + 600'000);
  // One after the other, each has a queue of its own. The queue's lock is still in its cache in the
  // next round.
  scenario.network.queues = 4;
  scenario.ready_ps.assign(2, {0, 1'000'000, 2'000'000, 3'000'000});
  EXPECT_EQ(round_of(scenario).exposed_ps, 50'000u + 100'000 + 600'000);
}

// --- the baseline, counted by hand ------------------------------------------------------------

constexpr loop::NetworkCosts kNetwork{.latency_ps = 1000 * kNs,
                                      .send_overhead_ps = 100 * kNs,
                                      .recv_overhead_ps = 50 * kNs,
                                      .gap_ps = 0,
                                      .byte_ps = 1 * kNs};
constexpr TwoSidedCosts kTwoSided{.request_ps = 200 * kNs,
                                  .match_ps = 30 * kNs,
                                  .copy_byte_ps = 2 * kNs,
                                  .zero_copy_from_bytes = 100,
                                  .rendezvous_from_bytes = 1000};

std::uint64_t baseline_ns(std::uint32_t partitions, std::uint64_t bytes) {
  Scenario scenario = scenario_of(partitions, kNetwork, bytes);
  scenario.two_sided = kTwoSided;
  scenario.ready_ps = {std::vector<std::uint64_t>(partitions, 0)};
  const Round round = round_of(scenario);
  EXPECT_EQ(round.total_ps % kNs, 0u);
  EXPECT_EQ(round.transfers, partitions);
  return round.total_ps / kNs;
}

TEST(LoopNetwork, TheBaselinesSendsByHand) {
  // request, copy, o_s; 10 - 1 bytes, L; o_r, match, copy
  EXPECT_EQ(baseline_ns(1, 10), 200u + 20 + 100 + 9 + 1000 + 50 + 30 + 20);
  // no copy on the way
  EXPECT_EQ(baseline_ns(1, 100), 200u + 100 + 99 + 1000 + 50 + 30 + 200);
  // request, o_s; announcement of 64 bytes; o_r, match; o_s; request to read; the bytes; o_r
  EXPECT_EQ(baseline_ns(1, 1000),
            200u + 100 + 63 + 1000 + 50 + 30 + 100 + 63 + 1000 + 999 + 1000 + 50);
}

TEST(LoopNetwork, TheBaselineHasOneLock) {
  // The lock is held for 320 ns each, which hides the wire; the receiver keeps up.
  EXPECT_EQ(baseline_ns(8, 10), 8u * 320 + 9 + 1000 + 50 + 30 + 20);
  // Eager, and the receiver's copies take longest: one message after the other.
  EXPECT_EQ(baseline_ns(8, 900), 300u + 899 + 1000 + 8 * (50 + 30 + 1800));
}

/// 7 of 8 partitions at once, the last one 100 us later.
Scenario one_laggard(std::uint64_t bytes, std::uint64_t deadline_ns) {
  Scenario scenario = scenario_of(8, kNetwork, bytes);
  scenario.plans = {{0}};
  scenario.deadline_ps = deadline_ns * kNs;
  scenario.ready_ps.assign(5, {0, 0, 0, 0, 0, 0, 0, 100'000 * kNs});
  return scenario;
}

TEST(LoopNetwork, ADeadlineSendsReadyPartitionsWithoutTheLaggard) {
  // Seven partitions are on the wire for 90.999 us. The first rounds' deadline sends them after 10
  // us: the laggard finds the wire taken until 10 + 0.1 + 90.999 + h. From then on it is known to
  // be one.
  auto outcome = simulate(one_laggard(13'000, 10'000));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->failure, "");
  const std::uint64_t last = 12'999 + 1000 + 50;
  const std::uint64_t by_deadline = 100 + 90'999 + 10'000 + 100 - 100'000 + last;
  const std::vector<std::uint64_t> exposed_ns{by_deadline, by_deadline, by_deadline, 100 + last,
                                              100 + last};
  for (std::size_t r = 0; r < exposed_ns.size(); ++r) {
    EXPECT_EQ(outcome->rounds[r].exposed_ps, exposed_ns[r] * kNs) << r;
    EXPECT_EQ(outcome->rounds[r].transfers, 2u);
  }
}

TEST(LoopNetwork, AThreadInTimeIsWaitedFor) {
  auto outcome = simulate(one_laggard(13'000, 100'001));
  ASSERT_TRUE(outcome);
  for (const Round& round : outcome->rounds) {
    EXPECT_EQ(round.transfers, 1u);
    EXPECT_EQ(round.exposed_ps, (100 + 8 * 13'000 - 1 + 1000 + 50) * kNs);
  }
}

TEST(LoopNetwork, AScenarioThatFitsNoChannelIsRefused) {
  Scenario fits = scenario_of(4, kNetwork, 8);
  fits.ready_ps = {{0, 0, 0, 0}};
  EXPECT_TRUE(simulate(fits));
  const auto refused = [&](auto&& change) {
    Scenario scenario = fits;
    change(scenario);
    const auto outcome = simulate(scenario);
    return !outcome && outcome.error() == Errc::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](Scenario& s) { s.partitions = 0; }));
  EXPECT_TRUE(refused([](Scenario& s) { s.threads = 0; }));
  EXPECT_TRUE(refused([](Scenario& s) { s.threads = 5; }));
  EXPECT_TRUE(refused([](Scenario& s) { s.network.queues = 0; }));
  EXPECT_TRUE(refused([](Scenario& s) { s.ready_ps = {{0, 0, 0}}; }));
  EXPECT_TRUE(refused([](Scenario& s) { s.plans = {}; }));
  EXPECT_TRUE(refused([](Scenario& s) { s.plans = {{1}}; }));
  EXPECT_TRUE(refused([](Scenario& s) { s.plans = {{0}, {0, 4}}; }));
  EXPECT_TRUE(refused([](Scenario& s) {
    s.deadline_ps = 1;
    s.plans = {{0}, {0, 2}};
  }));
  EXPECT_TRUE(refused([](Scenario& s) {
    s.deadline_ps = 1;
    s.policy = "learned";
  }));
}

}  // namespace
}  // namespace larklane::sim
