#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "part/policy/policy.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::part {
namespace {

constexpr std::uint64_t kDefault = 64 << 10;

Policy parsed(const char* text) {
  auto policy = Policy::parse(text, kDefault);
  EXPECT_TRUE(policy.has_value()) << text;
  return *policy;
}

TEST(PartPolicy, ReadsWhatTheOptionSays) {
  EXPECT_EQ(parsed("none").kind, Policy::Kind::none);
  EXPECT_EQ(parsed("single").kind, Policy::Kind::single);
  EXPECT_EQ(parsed("static:12").kind, Policy::Kind::static_count);
  EXPECT_EQ(parsed("static:12").argument, 12u);
  EXPECT_EQ(parsed("min_bytes").argument, kDefault);
  EXPECT_EQ(parsed("min_bytes:7").argument, 7u);
  EXPECT_EQ(parsed("min_bytes:3K").argument, 3u << 10);
  EXPECT_EQ(parsed("min_bytes:3M").argument, 3u << 20);
  EXPECT_EQ(parsed("min_bytes:3G").argument, std::uint64_t{3} << 30);
  EXPECT_EQ(parsed("learned").argument, kDefault);
  EXPECT_EQ(parsed("table").kind, Policy::Kind::table);
  EXPECT_EQ(parsed("ploggp").kind, Policy::Kind::ploggp);
  EXPECT_EQ(parsed("ploggp").argument, 4'000'000u);
  EXPECT_EQ(parsed("ploggp:0").argument, 0u);
  EXPECT_EQ(parsed("ploggp:7").argument, 7u);
  EXPECT_EQ(parsed("ploggp:3us").argument, 3'000u);
  EXPECT_EQ(parsed("ploggp:2s").argument, 2'000'000'000u);
  EXPECT_EQ(parsed("timer").deadline_ns(), 35'000u);
  EXPECT_EQ(parsed("timer:4us").deadline_ns(), 4'000u);
  EXPECT_EQ(parsed("ploggp:4us").deadline_ns(), 0u);
}

TEST(PartPolicy, RefusesEverythingElse) {
  for (const char* text : {"",
                           "nothing",
                           "none:1",
                           "single:1",
                           "static",
                           "static:",
                           "static:0",
                           "static:-1",
                           "static:1x",
                           "static: 1",
                           "min_bytes:",
                           "min_bytes:0",
                           "min_bytes:1KK",
                           "min_bytes:18446744073709551616",
                           "min_bytes:18446744073709551615G",
                           "table:1",
                           "table:",
                           "ploggp:",
                           "ploggp:-1",
                           "ploggp:4K",
                           "ploggp:4 ms",
                           "ploggp:18446744073709551615s",
                           "timer:",
                           "timer:0",
                           "timer:-3us",
                           "timer:3K"})
    EXPECT_EQ(Policy::parse(text, kDefault).error().code(), Errc::kBadOption) << text;
}

/// Ascending from 0, below `partitions`; sizes differ by one at most.
void expect_balanced(const std::vector<std::uint32_t>& first, std::uint32_t partitions) {
  ASSERT_FALSE(first.empty());
  ASSERT_EQ(first[0], 0u);
  std::uint32_t least = partitions, most = 0;
  for (std::size_t g = 0; g < first.size(); ++g) {
    const std::uint32_t end = g + 1 < first.size() ? first[g + 1] : partitions;
    ASSERT_GT(end, first[g]);
    least = std::min(least, end - first[g]);
    most = std::max(most, end - first[g]);
  }
  ASSERT_LE(most - least, 1u);
}

TEST(PartPolicy, StaticHasThatManyGroupsOrAsManyAsThereArePartitions) {
  for (std::uint32_t partitions = 1; partitions <= 64; ++partitions) {
    for (std::uint32_t groups = 1; groups <= 70; ++groups) {
      const auto first = Policy{Policy::Kind::static_count, groups}.boundaries(partitions, 8);
      ASSERT_EQ(first.size(), std::min(groups, partitions));
      expect_balanced(first, partitions);
    }
  }
}

TEST(PartPolicy, EveryGroupOfMinBytesHasThem) {
  for (std::uint32_t partitions = 1; partitions <= 64; ++partitions) {
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7},
                                      std::uint64_t{100}, std::uint64_t{1} << 40}) {
      for (const std::uint64_t least : {std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{1000}}) {
        const auto first = Policy{Policy::Kind::min_bytes, least}.boundaries(partitions, bytes);
        ASSERT_EQ(first, (Policy{Policy::Kind::learned, least}.boundaries(partitions, bytes)));
        expect_balanced(first, partitions);
        const std::uint64_t per_group = partitions / first.size();
        ASSERT_TRUE(first.size() == 1 || per_group * bytes >= least);
      }
    }
  }
}

TEST(PartPolicy, NoneAndSingle) {
  EXPECT_EQ(Policy{}.boundaries(3, 8), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ((Policy{Policy::Kind::single, 0}.boundaries(3, 8)), std::vector<std::uint32_t>{0});
  const auto most = static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ((Policy{Policy::Kind::static_count, 2}.boundaries(most, 8)),
            (std::vector<std::uint32_t>{0, most / 2}));
}

std::size_t groups_of(const Policy& policy, std::uint32_t partitions, std::uint64_t bytes) {
  const auto first = policy.boundaries(partitions, bytes / partitions);
  expect_balanced(first, partitions);
  return first.size();
}

// A deadline is a word's, so each group has one of its own.
TEST(PartPolicy, GroupsOfATimerHaveAWordEach) {
  const Policy policy = parsed("timer");
  for (std::uint32_t partitions = 1; partitions <= 300; ++partitions) {
    const Layout layout =
        std::move(Layout::make(partitions, policy.boundaries(partitions, 64))).value();
    EXPECT_TRUE(layout.roots().empty()) << partitions;
    EXPECT_EQ(layout.words().size(), (partitions + 31) / 32) << partitions;
    for (const Word& word : layout.words()) EXPECT_EQ(word.starts, 1u) << partitions;
  }
}

/// docs/design/model.md, table I; between its sizes the nearest one in log2.
TEST(PartPolicy, WithoutATuningTheRuleIsThePapersTable) {
  for (const char* text : {"table", "ploggp", "ploggp:0"}) {
    const Policy policy = parsed(text);
    EXPECT_TRUE(policy.asks_tuning());
    for (const auto& [kib, groups] :
         std::vector<std::pair<std::uint64_t, std::size_t>>{{0, 1},
                                                            {1, 1},
                                                            {256, 1},
                                                            {383, 1},
                                                            {384, 2},
                                                            {512, 2},
                                                            {1 << 10, 2},
                                                            {2 << 10, 4},
                                                            {4 << 10, 4},
                                                            {8 << 10, 8},
                                                            {16 << 10, 8},
                                                            {32 << 10, 16},
                                                            {64 << 10, 16},
                                                            {128 << 10, 32},
                                                            {std::uint64_t{1} << 40, 128}})
      EXPECT_EQ(groups_of(policy, 128, kib << 10), groups) << kib;
    EXPECT_EQ(groups_of(policy, 4, 128 << 20), 4u);
    EXPECT_EQ(groups_of(policy, 5, std::uint64_t{5} << 40), 5u);
    EXPECT_EQ(groups_of(policy, 1, 128 << 20), 1u);
  }
  EXPECT_FALSE(parsed("min_bytes").asks_tuning());
}

TEST(PartPolicy, TableTakesTheEntryAtOrBelow) {
  model::Tuning tuning;
  tuning.entries = {{8, 1 << 20, 1}, {8, 4 << 20, 8}, {32, 1 << 20, 2}};
  Policy policy = parsed("table");
  policy.tuning = &tuning;
  EXPECT_EQ(groups_of(policy, 8, 1 << 20), 1u);
  EXPECT_EQ(groups_of(policy, 8, (4 << 20) - 8), 1u);
  EXPECT_EQ(groups_of(policy, 8, 4 << 20), 8u);
  EXPECT_EQ(groups_of(policy, 32, 64 << 20), 2u);
  EXPECT_EQ(groups_of(policy, 16, 64 << 20), 16u);  // the rule: there is no entry
  EXPECT_EQ(groups_of(policy, 32, 512 << 10), 2u);  // the rule: all are above
  Policy modelled = parsed("ploggp");
  modelled.tuning = &tuning;
  EXPECT_EQ(groups_of(modelled, 8, 1 << 20), 2u);  // the rule: there are no parameters
}

/// 8 partitions of 1024 bytes, 1 ns a byte, h 100 ns, o_s 50 ns, o_r 100 ns: after o_s + L + o_r, n
/// groups of k bytes are over at G (k - 1) + max(delay, (n - 1) (h + G (k - 1))):
///   n = 1: 8191 + delay; 2: 4095 + max(delay, 4195); 4: 2047 + max(delay, 6441);
///   8: 1023 + max(delay, 7861)
TEST(PartPolicy, PloggpIsWhatTheModelSays) {
  model::Tuning tuning;
  tuning.ranges = {{1, 1 << 20, {1000, 50, 100, 100, 1, 0, 0}}};
  const auto groups = [&](const char* text, std::uint32_t partitions, std::uint64_t bytes) {
    Policy policy = parsed(text);
    policy.tuning = &tuning;
    return groups_of(policy, partitions, bytes);
  };
  EXPECT_EQ(groups("ploggp:0", 8, 8192), 1u);     // 8191, 8290, 8488, 8884
  EXPECT_EQ(groups("ploggp:100", 8, 8192), 2u);   // 8291, 8290, 8488, 8884
  EXPECT_EQ(groups("ploggp:4395", 8, 8192), 4u);  // 12586, 8490, 8488, 8884
  EXPECT_EQ(groups("ploggp:6836", 8, 8192), 4u);  // 15027, 10931, 8883, 8884
  EXPECT_EQ(groups("ploggp:6838", 8, 8192), 8u);  // 15029, 10933, 8885, 8884
  EXPECT_EQ(groups("ploggp", 8, 8192), 8u);
  EXPECT_EQ(groups("ploggp", 6, 6 << 10), 6u);  // as many as there are
  EXPECT_EQ(groups("ploggp:0", 6, 6 << 10), 1u);
  EXPECT_EQ(groups("ploggp", 1, 8192), 1u);
  EXPECT_EQ(groups("ploggp", 4, 0), 1u);  // of nothing
}

/// Each group follows the parameters of its own size.
TEST(PartPolicy, PloggpTakesTheRangeOfTheGroup) {
  model::Tuning tuning;
  tuning.ranges = {{1, 4096, {1e6, 0, 0, 0, 0, 0, 0}}, {4097, 1 << 20, {0, 0, 0, 0, 0.001, 0, 0}}};
  Policy policy = parsed("ploggp");
  policy.tuning = &tuning;
  EXPECT_EQ(groups_of(policy, 16, 64 << 10), 8u);  // of 8 KiB; 16 are of 4 KiB
}

}  // namespace
}  // namespace larklane::part
