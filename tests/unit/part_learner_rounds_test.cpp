// One learner that gets its observations round by round.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "model/plan.hpp"
#include "part/policy/learned/learner.hpp"
#include "part/policy/planning.hpp"

namespace larklane::part {
namespace {

using Times = std::vector<double>;
using Firsts = std::vector<std::uint32_t>;

/// As many groups as there are partitions.
Firsts singles(std::uint32_t partitions) { return model::equal_groups(partitions, partitions); }

TEST(PartLearner, StaysAtItsBaseWithoutRunsToSee) {
  for (const Firsts& base : {Firsts{0}, Firsts{0, 4, 6}}) {
    Learner learner(8, 4096, base);
    std::uint64_t others = 0;
    for (int round = 0; round < 400; ++round) {
      if (learner.turn().is_sampled)
        if (const auto study = learner.see({Times(8, 0), {}, {}, 1000})) study->run();
      others += learner.is_at_base() ? 0 : 1;
    }
    EXPECT_LE(others, 12u) << "trials";
    EXPECT_EQ(learner.firsts(), base);
  }
}

TEST(PartLearner, DoesWithoutUntimedRounds) {
  Learner learner(8, 4096, {0});
  for (int round = 1; round <= 40; ++round)
    if (learner.turn().is_sampled && round > 2 && round % 2 == 0)  // trials alone
      (void)learner.see({Times(8, 0), {}, {}, 1000});
  EXPECT_TRUE(learner.is_at_base());
}

TEST(PartLearner, CellsAreInversesOfTheirBoundaries) {
  for (const std::uint32_t partitions : {1u, 2u, 127u, 128u, 129u, 1000u, 4096u, 2147483647u}) {
    const PlanCells cells(partitions);
    ASSERT_EQ(cells.count(), std::min(partitions, 128u));
    Firsts all(cells.count());
    for (std::uint32_t c = 0; c < cells.count(); ++c) all[c] = c;
    const Firsts firsts = cells.boundaries(all);
    for (std::uint32_t c = 0; c < cells.count(); ++c) {
      ASSERT_EQ(cells.of(firsts[c]), c) << partitions;
      if (c != 0) {
        ASSERT_EQ(cells.of(firsts[c] - 1), c - 1) << partitions;
      }
    }
    ASSERT_EQ(cells.of(partitions - 1), cells.count() - 1);
    ASSERT_EQ(cells.firsts(firsts), all) << partitions;
  }
}

TEST(PartLearner, CellsHoldGroupsOfAnySize) {
  const PlanCells cells(512);  // of 4 partitions each
  EXPECT_EQ(cells.firsts({0, 1, 2, 3, 4, 9, 500, 511}), (Firsts{0, 1, 2, 125, 127}));
  EXPECT_TRUE(cells.are_whole(0, 4) && cells.are_whole(500, 12));
  EXPECT_FALSE(cells.are_whole(0, 3) || cells.are_whole(1, 3) || cells.are_whole(510, 2));
  EXPECT_TRUE(PlanCells(128).are_whole(127, 1));
}

TEST(PartLearner, BeginsWithItsBase) {
  Learner learner(16, 4096, singles(16));
  for (int round = 1; round <= 3; ++round) {
    EXPECT_EQ(learner.firsts(), singles(16));
    EXPECT_EQ(learner.turn().is_sampled, round != 1);
    if (round != 1) (void)learner.see({Times(16, 0), {}, {{4096, 0, 1000}}, 1000});
  }
  EXPECT_EQ(learner.firsts().size(), 8u) << "half as many are the first trial";
}

TEST(PartLearner, DoesNotCallTrialsCheapForASlowRoundOfTheBase) {
  Learner learner(64, 4096, singles(64));
  std::vector<std::size_t> trials;
  for (int round = 1; round <= 12; ++round) {
    const std::size_t groups = learner.firsts().size();
    if (groups != 64) trials.push_back(groups);
    const double left = round == 5 ? 10'000 : groups == 64 ? 1000 : 2000;
    if (learner.turn().is_sampled) (void)learner.see({Times(64, 0), {}, {{4096, 0, 500}}, left});
  }
  EXPECT_EQ(trials, (std::vector<std::size_t>{32, 16}));
}

TEST(PartLearner, DoesNotCallTrialsGoodForAColdStart) {
  Learner learner(4, 256, {0});
  const Times cold{14'000, 940, 500};  // then 29
  std::size_t others = 0;
  for (std::size_t round = 0; round < 60; ++round) {
    const bool is_base = learner.is_at_base();
    others += is_base ? 0 : 1;
    const double left = !is_base ? 80 : round < cold.size() ? cold[round] : 29;
    if (learner.turn().is_sampled) (void)learner.see({Times(4, 0), {}, {}, left});
  }
  EXPECT_EQ(others, 2u) << "more than the trials";
}

/// A learner with studies that never end, of 32 partitions each by itself. left: by number of
/// groups.
class WithoutPlans {
 public:
  explicit WithoutPlans(std::map<std::size_t, double> left) : left_(std::move(left)) {}

  /// @return how often each number of groups was had in so many rounds
  std::map<std::size_t, int> run(int rounds) {
    std::map<std::size_t, int> had;
    for (; rounds > 0; --rounds) {
      const std::size_t groups = learner_.firsts().size();
      ++had[groups];
      if (learner_.turn().is_sampled)
        if (auto study = learner_.see({Times(32, 0), {}, {}, left_.at(groups)})) study_ = study;
    }
    return had;
  }
  void change(std::size_t groups, double left) { left_[groups] = left; }
  bool finish_study() {
    if (study_) study_->run();
    return study_ != nullptr;
  }

 private:
  Learner learner_{32, 4096, singles(32)};
  std::map<std::size_t, double> left_;
  std::shared_ptr<Study> study_;
};

// On busy processors a study may take as long as a thousand rounds.
TEST(PartLearner, UsesTheBestTrialUntilThereIsAPlan) {
  WithoutPlans world({{32, 1000}, {16, 700}, {8, 400}, {4, 500}, {2, 600}, {1, 900}});
  world.run(13);
  auto had = world.run(100);
  EXPECT_GE(had[8], 90);
  EXPECT_EQ(had[8] + had[32], 100) << "and the base, to compare with";
  ASSERT_TRUE(world.finish_study());
  world.run(2);
  EXPECT_EQ(world.run(20)[32], 20) << "no runs were seen, so there is no plan";
}

TEST(PartLearner, DoesNotUseATrialThatIsLittleBetterThanTheBase) {
  WithoutPlans world({{32, 1000}, {16, 950}, {8, 910}, {4, 920}, {2, 950}, {1, 990}});
  world.run(13);
  EXPECT_EQ(world.run(100)[32], 100);
}

TEST(PartLearner, LeavesATrialThatWasLucky) {
  WithoutPlans world({{32, 1000}, {16, 700}, {8, 400}, {4, 500}, {2, 600}, {1, 900}});
  world.run(13);
  world.change(8, 1100);
  world.run(60);
  EXPECT_EQ(world.run(40)[32], 40);
  for (const std::size_t groups : {16u, 4u, 2u, 1u}) world.change(groups, 1200);
  ASSERT_TRUE(world.finish_study());
  EXPECT_LE(world.run(2000)[8], 4) << "trials, which are dear now";
}

// A plan in use does not come and go because it is little better than the base.
TEST(PartLearner, KeepsAPlanLittleBetterThanTheBase) {
  constexpr std::uint64_t kBytes = 64 << 10;
  constexpr model::LogGP kNetwork{.latency_ns = 2000, .gap_ns = 300, .gap_per_byte_ns = 1 / 11.5};
  const double whole = kNetwork.message_ns(2 * kBytes), half = kNetwork.message_ns(kBytes);
  Study::Question question{kBytes, {}, {}, {0, 1}, whole / 0.995, {}};
  for (int i = 0; i < 8; ++i) question.rounds.ready_ns.push_back({0, 0});
  const double second = half + kNetwork.period_ns(kBytes);
  question.runs = {{{2 * kBytes, 0, whole}}, {{kBytes, 0, half}, {kBytes, 0, second}}};
  for (const Firsts& used : {Firsts{}, Firsts{0}}) {
    question.firsts = used;
    Study study(question);
    study.run();
    EXPECT_EQ(study.findings().firsts, used.empty() ? question.base : used);
  }
}

TEST(Planning, CompletionsOfOnePollDidNotComeTogether) {
  std::vector<model::SeenRun> runs{{8, 20, 101}, {8, 0, 100}, {8, 10, 102}, {8, 500, 503}};
  space_ends(runs, 10);
  std::vector<double> ends_ns;
  for (const model::SeenRun& run : runs) ends_ns.push_back(run.end_ns);
  EXPECT_EQ(ends_ns, (std::vector<double>{100, 110, 120, 503}));
}

}  // namespace
}  // namespace larklane::part
