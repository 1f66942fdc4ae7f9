// The engine's direct mode and shared copies on simulated threads that copy: times counted by hand,
// bounds of random rounds, the file of measured costs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "model/plan.hpp"
#include "net/loop/random.hpp"
#include "sim/scenario.hpp"
#include "simulated_round.hpp"

namespace larklane::sim {
namespace {

using loop::Random;

constexpr std::uint64_t kNs = 1000;  // in picoseconds
constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kSetupPs = 700 * kNs;
constexpr std::uint64_t kBytePs = 100;

constexpr std::uint64_t call_ps(std::uint64_t bytes, std::uint64_t byte_ps = kBytePs) {
  return kSetupPs + bytes * byte_ps;
}

/// Nothing has a cost but the calls, which take as long beside other copying threads.
CopyCosts even_costs() {
  CopyCosts costs;
  for (const std::uint64_t bytes : {2 * kKiB, 32 * kKiB}) {
    const CallCost::Pair pair{call_ps(bytes), call_ps(bytes)};
    costs.calls.push_back({1, bytes, {pair, pair, pair}});
  }
  return costs;
}

Scenario scenario_of(std::uint32_t partitions, std::uint64_t partition_bytes, std::uint32_t threads,
                     std::uint32_t groups) {
  Scenario scenario;
  scenario.partitions = partitions;
  scenario.partition_bytes = partition_bytes;
  scenario.threads = threads;
  scenario.plans = {model::equal_groups(partitions, groups)};
  scenario.ready_ps = {std::vector<std::uint64_t>(partitions, 0)};
  scenario.processor = loop::kFreeCosts;
  scenario.copying = even_costs();
  return scenario;
}

/// The first of two threads makes its partitions ready at `late_ps`.
Scenario with_late_half(Scenario scenario, std::uint64_t late_ps) {
  for (std::uint32_t p = 0; p < scenario.partitions / 2; ++p)
    scenario.ready_ps.front()[p] = late_ps;
  return scenario;
}

TEST(LoopCopying, TheCompletingThreadCopiesASmallGroup) {
  EXPECT_EQ(round_of(scenario_of(1, 8 * kKiB, 1, 1)).total_ps, call_ps(8 * kKiB));
  EXPECT_EQ(round_of(scenario_of(4, 4 * kKiB, 1, 1)).total_ps, call_ps(16 * kKiB));
  // A call each, one after the other.
  const Round apart = round_of(scenario_of(4, 4 * kKiB, 1, 4));
  EXPECT_EQ(apart.total_ps, 4 * call_ps(4 * kKiB));
  EXPECT_EQ(apart.transfers, 4u);
}

TEST(LoopCopying, TheReceiverCopiesHalfOfALargeGroup) {
  EXPECT_EQ(round_of(scenario_of(1, 64 * kKiB, 1, 1)).total_ps, call_ps(32 * kKiB));
  EXPECT_EQ(round_of(scenario_of(8, 64 * kKiB, 1, 1)).total_ps, 8 * call_ps(32 * kKiB));
  EXPECT_EQ(round_of(scenario_of(1, 32 * kKiB, 1, 1)).total_ps, call_ps(16 * kKiB));
  // It has no core until the thread leaves its own.
  Scenario alone = scenario_of(1, 64 * kKiB, 1, 1);
  alone.copying->cores = 1;
  alone.copying->switch_ps = 3000 * kNs;
  EXPECT_EQ(round_of(alone).total_ps, 2 * call_ps(32 * kKiB) + 3000 * kNs);
}

TEST(LoopCopying, TwoThreadsOfTheSenderKeepBothCores) {
  Scenario scenario = scenario_of(2, 16 * kKiB, 2, 2);
  scenario.copying->switch_ps = 3000 * kNs;
  scenario.copying->pready_ps = 20 * kNs;
  EXPECT_EQ(round_of(scenario).total_ps, 20 * kNs + call_ps(16 * kKiB) + 3000 * kNs);
  scenario = scenario_of(2, 64 * kKiB, 2, 2);
  EXPECT_EQ(round_of(scenario).total_ps, 2 * call_ps(32 * kKiB));
  // Of one group the thread that is ready first leaves its core. The receiver gets this core only
  // if it is the second thread's.
  scenario.plans = {{0}};
  EXPECT_EQ(round_of(with_late_half(scenario, 1000 * kNs)).exposed_ps, 2 * call_ps(32 * kKiB));
  scenario.ready_ps = {{0, 1000 * kNs}};
  EXPECT_EQ(round_of(scenario).exposed_ps, 4 * call_ps(32 * kKiB));
}

TEST(LoopCopying, BesideALateThreadTheReceiverCopies) {
  const std::uint64_t late_ps = 1'000'000 * kNs;
  const Scenario apart = with_late_half(scenario_of(4, 32 * kKiB, 2, 2), late_ps);
  EXPECT_EQ(round_of(apart).exposed_ps, call_ps(32 * kKiB));
  const Scenario together = with_late_half(scenario_of(4, 32 * kKiB, 2, 1), late_ps);
  EXPECT_EQ(round_of(together).exposed_ps, 2 * call_ps(32 * kKiB));
  // Half a pause makes half as cold.
  Scenario cold = apart;
  cold.copying->first_ps = 2000 * kNs;
  EXPECT_EQ(round_of(cold).exposed_ps, 2000 * kNs + call_ps(32 * kKiB));
  EXPECT_EQ(round_of(with_late_half(cold, late_ps / 2)).exposed_ps,
            1000 * kNs + call_ps(32 * kKiB));
  // Too small for two: the late thread copies, call after call, and the receiver sees it half a
  // turn after.
  Scenario small = with_late_half(scenario_of(8, 8 * kKiB, 2, 8), late_ps);
  small.copying->turn_ps = 800 * kNs;
  EXPECT_EQ(round_of(small).exposed_ps, 4 * call_ps(8 * kKiB) + 400 * kNs);
}

TEST(LoopCopying, TheCostDependsOnTheOtherCopyingThreads) {
  const auto with = [](Scenario scenario, std::uint64_t sender_byte_ps,
                       std::uint64_t receiver_byte_ps) {
    for (CallCost& call : scenario.copying->calls) {
      const std::uint64_t sender_ps = call_ps(call.bytes, sender_byte_ps);
      const std::uint64_t receiver_ps = call_ps(call.bytes, receiver_byte_ps);
      call.by_beside[1] = {sender_ps, sender_ps};
      call.by_beside[2] = {receiver_ps, receiver_ps};
    }
    return scenario;
  };
  // Of two that begin at once the first may have a step alone, and so may the other at the end.
  const auto near = [](std::uint64_t ps, std::uint64_t byte_ps, const char* what) {
    const auto whole = static_cast<double>(call_ps(16 * kKiB, byte_ps));
    EXPECT_NEAR(static_cast<double>(ps), whole, whole / 4) << what;
  };
  near(round_of(with(scenario_of(2, 16 * kKiB, 2, 2), 300, 900)).total_ps, 300, "two threads");
  near(round_of(with(scenario_of(1, 32 * kKiB, 1, 1), 900, 300)).total_ps, 300, "both sides");
  EXPECT_EQ(round_of(with(scenario_of(2, 8 * kKiB, 1, 1), 900, 900)).total_ps, call_ps(16 * kKiB));
}

Scenario random_scenario(Random& random) {
  const auto threads = static_cast<std::uint32_t>(1 + random.below(2));
  const auto partitions = threads + static_cast<std::uint32_t>(random.below(60));
  Scenario scenario =
      scenario_of(partitions, 1 + random.below(random.one_in(2) ? 200 : 40 * kKiB), threads,
                  1 + static_cast<std::uint32_t>(random.below(partitions)));
  scenario.seed = random.next();
  scenario.copying->turn_ps = random.below(1000 * kNs);
  scenario.copying->line_ps = random.below(100 * kNs);
  scenario.copying->switch_ps = random.below(5000 * kNs);
  scenario.copying->piece_bytes = 1 + random.below(64 * kKiB);
  scenario.ready_ps.assign(3, {});
  for (auto& ready : scenario.ready_ps)
    for (std::uint32_t p = 0; p < partitions; ++p) ready.push_back(random.below(100'000 * kNs));
  return scenario;
}

/// Every byte is checked on the way; two cores copy at most twice as fast as one.
TEST(LoopCopying, RandomRoundsMoveEachByteInTime) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const Scenario scenario = random_scenario(random);
    const Round round = round_of(scenario);
    const std::uint64_t bytes = scenario.partitions * scenario.partition_bytes;
    EXPECT_GE(round.total_ps, bytes * kBytePs / 2) << "LARKLANE_SEED=" << seed;
    EXPECT_EQ(round.transfers, scenario.plans.front().size()) << "LARKLANE_SEED=" << seed;
    EXPECT_EQ(text_of(scenario), text_of(scenario)) << "LARKLANE_SEED=" << seed;
  }
}

TEST(LoopCopying, AScenarioThatDoesNotFitIsRefused) {
  const auto refused = [](auto&& change) {
    Scenario scenario = scenario_of(4, 8, 2, 1);
    change(scenario);
    return !simulate(scenario);
  };
  EXPECT_FALSE(refused([](Scenario&) {}));
  EXPECT_TRUE(refused([](Scenario& s) { s.copying->calls.clear(); }));
  EXPECT_TRUE(refused([](Scenario& s) { s.copying->cores = 1; }));
  EXPECT_TRUE(refused([](Scenario& s) { s.policy = "learned"; }));
  EXPECT_TRUE(refused([](Scenario& s) { s.two_sided.emplace(); }));
}

// --- the file of costs ------------------------------------------------------------------------

constexpr const char* kFile = R"(larklane copy costs 1
# nanoseconds
cores 2
piece_bytes 32768
pready 12.5
move 300
first 2000
line 50
turn 800
switch 3000
copy 65536 2048 900 800 1000 700 1100 600
copy 65536 8192 1500 1400 2200 1300 2300 1200
copy 1048576 8192 2000 1900 4000 3000 6000 5000
end
)";

CopyCosts read(const std::string& text, std::string* problem) {
  std::istringstream stream(text);
  return read_copy_costs(stream, problem);
}

TEST(CopyCosts, AreReadAndFollowLines) {
  std::string problem;
  const CopyCosts costs = read(kFile, &problem);
  ASSERT_EQ(problem, "");
  EXPECT_EQ(costs.pready_ps, 12'500u);
  EXPECT_EQ(costs.switch_ps, 3000 * kNs);
  EXPECT_EQ(costs.cores, 2u);
  EXPECT_EQ(costs.call_ps(64 * kKiB, 2048, Beside::nobody, false), 900 * kNs);
  EXPECT_EQ(costs.call_ps(64 * kKiB, 2048, Beside::nobody, true), 800 * kNs);
  EXPECT_EQ(costs.call_ps(64 * kKiB, 8192, Beside::receiver, true), 1200 * kNs);
  EXPECT_EQ(costs.call_ps(64 * kKiB, 5120, Beside::sender, false), 1600 * kNs);   // between two
  EXPECT_EQ(costs.call_ps(64 * kKiB, 14336, Beside::nobody, false), 2100 * kNs);  // beyond them
  EXPECT_EQ(costs.call_ps(64 * kKiB, 1024, Beside::receiver, false), 900 * kNs);  // below them
  EXPECT_EQ(costs.call_ps(200 * kKiB, 8192, Beside::receiver, false),
            2300 * kNs);  // nearer to 64 KiB
  EXPECT_EQ(costs.call_ps(300 * kKiB, 8192, Beside::receiver, false), 6000 * kNs);
  EXPECT_EQ(costs.call_ps(kKiB * kKiB, 16384, Beside::sender, false), 8000 * kNs);  // one alone
}

TEST(CopyCosts, TheErrorNamesTheWrongLine) {
  const auto problem_with = [](const std::string& what, const std::string& instead) {
    std::string text = kFile, problem;
    text.replace(text.find(what), what.size(), instead);
    read(text, &problem);
    return problem;
  };
  EXPECT_EQ(problem_with("costs 1", "costs 2"), "the first line is not 'larklane copy costs 1'");
  EXPECT_EQ(problem_with("turn 800", "turn -1"),
            "line 9: 'turn -1' is no cost, or one that can't be");
  EXPECT_EQ(problem_with("turn 800", "turn 8 0"), "line 9: 'turn 8 0' has too many words");
  EXPECT_EQ(problem_with("turn 800", "line 50"), "line 9: 'line 50' is there twice");
  EXPECT_EQ(problem_with("turn 800", "turns 80"),
            "line 9: 'turns 80' is no cost, or one that can't be");
  EXPECT_EQ(problem_with("turn 800\n", ""), "there is no line 'turn'");
  EXPECT_EQ(problem_with("end\n", ""), "there is no line 'end'");
  EXPECT_EQ(problem_with("end\n", "end\ncores 2\n"), "line 15: 'cores 2' follows 'end'");
  EXPECT_EQ(
      problem_with("8192 1500", "1024 1500"),
      "line 12: 'copy 65536 1024 1500 1400 2200 1300 2300 1200' is no cost, or one that can't be");
}

}  // namespace
}  // namespace larklane::sim
