// Exact data on the simulation: the real protocol code, every small case, then random ones.
// LARKLANE_SEED=N repeats one run; --gtest_filter selects the test.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/sanitized.hpp"
#include "loop_channel.hpp"
#include "model/plan.hpp"
#include "net/loop/random.hpp"

namespace larklane::part::prop {
namespace {

#ifdef LARKLANE_SANITIZED
constexpr std::uint64_t kShare =
    16;  ///< a sixteenth of the cases: an instrumented run is that much slower
#else
constexpr std::uint64_t kShare = 1;
#endif

std::optional<std::uint64_t> given_seed() {
  const char* text = std::getenv("LARKLANE_SEED");
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

void expect_exact(const Case& c, std::uint64_t seed) {
  const std::string why = run_case(c, seed);
  if (!why.empty()) FAIL() << c.text() << "\n" << why << "LARKLANE_SEED=" << seed;
}

/// Runs seeds [1, count], or the given one.
void for_seeds(std::uint64_t count, const std::function<Case(std::uint64_t)>& make) {
  if (const auto seed = given_seed()) return expect_exact(make(*seed), *seed);
  for (std::uint64_t seed = 1; seed <= count && !testing::Test::HasFailure(); seed += kShare)
    expect_exact(make(seed), seed);
}

std::vector<std::uint32_t> static_groups(std::uint32_t partitions, std::uint32_t groups) {
  return model::equal_groups(partitions, std::min(groups, partitions));
}

/// Every 1 <= S, R <= 24; direct with every split static(n).
std::vector<Case> small_cases() {
  std::vector<Case> cases;
  for (std::uint32_t s = 1; s <= 24; ++s) {
    for (std::uint32_t r = 1; r <= 24; ++r) {
      for (std::uint32_t groups = 1; groups <= s; ++groups)
        cases.push_back({s, r, Mode::direct, {static_groups(s, groups)}, 1});
      cases.push_back({s, r, Mode::slots, {}, 1});
    }
  }
  return cases;
}

TEST(LoopExact, EverySmallCaseWithEverySplit) {
  const std::vector<Case> cases = small_cases();
  for_seeds(4 * cases.size(), [&](std::uint64_t seed) { return cases[seed % cases.size()]; });
}

std::vector<std::uint32_t> random_groups(loop::Random& random, std::uint32_t partitions) {
  std::vector<std::uint32_t> boundaries{0};
  const std::uint64_t density = 1 + random.below(partitions);
  for (std::uint32_t p = 1; p < partitions; ++p)
    if (random.one_in(density)) boundaries.push_back(p);
  return boundaries;
}

TEST(LoopExact, RandomGroupsUpTo200Partitions) {
  for_seeds(4000, [](std::uint64_t seed) {
    loop::Random random(seed);
    const auto s = static_cast<std::uint32_t>(1 + random.below(200));
    const auto r = static_cast<std::uint32_t>(1 + random.below(random.one_in(2) ? 200 : 8));
    return Case{s, r, Mode::direct, {random_groups(random, s)}, random.one_in(8) ? 0u : 1u};
  });
}

TEST(LoopExact, OtherGroupsInEveryRound) {
  for_seeds(4000, [](std::uint64_t seed) {
    loop::Random random(seed);
    const auto s = static_cast<std::uint32_t>(1 + random.below(random.one_in(2) ? 200 : 6));
    const auto r = static_cast<std::uint32_t>(1 + random.below(random.one_in(2) ? s : 8));
    std::vector<std::vector<std::uint32_t>> plans(2 + random.below(3));
    for (auto& boundaries : plans) boundaries = random_groups(random, s);
    return Case{s, r, Mode::direct, std::move(plans), random.one_in(8) ? 0u : 1u, 6};
  });
}

TEST(LoopExact, RandomSlotsUpTo200Partitions) {
  for_seeds(1500, [](std::uint64_t seed) {
    loop::Random random(seed);
    const auto s = static_cast<std::uint32_t>(1 + random.below(200));
    const auto r = static_cast<std::uint32_t>(1 + random.below(random.one_in(2) ? 200 : 8));
    return Case{s, r, Mode::slots, {}, random.below(3)};
  });
}

TEST(LoopExact, ManyShortRoundsWithDeadlinesThatComeTooLate) {
  for_seeds(3000, [](std::uint64_t seed) {
    loop::Random random(seed);
    const auto s = static_cast<std::uint32_t>(random.one_in(3) ? 33 : 2 + random.below(3));
    return Case{s, 1, Mode::direct, {{0}}, 1, 12};
  });
}

TEST(LoopExact, AGroupThatIsLargerThanARoot) {
  for_seeds(8 * kShare, [](std::uint64_t seed) {
    return Case{1100, seed % 2 == 0 ? 11u : 4u, Mode::direct, {{0, 7}}, 1};
  });
}

}  // namespace
}  // namespace larklane::part::prop
