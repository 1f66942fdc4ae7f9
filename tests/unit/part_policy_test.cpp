// The policies: option syntax, needs, groups.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "part/policy/registry.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::part {
namespace {

constexpr std::uint64_t kDefault = 64 << 10;

PolicyPointer parsed(const std::string& text, const model::Tuning* tuning = nullptr) {
  auto policy = make_policy(text, {kDefault, [tuning] { return tuning; }});
  EXPECT_TRUE(policy.has_value()) << text;
  return *policy;
}

std::size_t count_of(const std::string& text, std::uint32_t partitions, std::uint64_t bytes) {
  return parsed(text)->groups(partitions, bytes).size();
}

TEST(PartPolicy, ReadsTheOption) {
  EXPECT_EQ(count_of("none", 24, 8), 24u);
  EXPECT_EQ(count_of("single", 24, 8), 1u);
  EXPECT_EQ(count_of("static:12", 24, 8), 12u);
  EXPECT_EQ(count_of("min_bytes", 64, 8 << 10), 8u);
  EXPECT_EQ(count_of("min_bytes:7", 14, 1), 2u);
  EXPECT_EQ(count_of("min_bytes:8", 14, 1), 1u);
  EXPECT_EQ(count_of("min_bytes:3K", 12, 1 << 10), 4u);
  EXPECT_EQ(count_of("min_bytes:3M", 12, 1 << 20), 4u);
  EXPECT_EQ(count_of("min_bytes:3G", 12, 1 << 30), 4u);
  EXPECT_EQ(count_of("learned", 64, 8 << 10), 8u);
}

TEST(PartPolicy, StatesItsNeeds) {
  EXPECT_EQ(parsed("timer")->needs().deadline_ns, 35'000u);
  EXPECT_EQ(parsed("timer:4us")->needs().deadline_ns, 4'000u);
  EXPECT_EQ(parsed("ploggp:4us")->needs().deadline_ns, 0u);
  EXPECT_TRUE(parsed("learned")->needs().has_planner);
  EXPECT_TRUE(parsed("learned")->needs().is_on_demand);
  EXPECT_NE(parsed("learned")->planner({8, 8, {0}}), nullptr);
  for (const char* text : {"none", "single", "static:2", "min_bytes", "table", "ploggp", "timer"}) {
    EXPECT_FALSE(parsed(text)->needs().has_planner) << text;
    EXPECT_FALSE(parsed(text)->needs().is_on_demand) << text;
    EXPECT_EQ(parsed(text)->planner({8, 8, {0}}), nullptr) << text;
  }
}

TEST(PartPolicy, AsksForMeasurementsOnlyIfItUsesThem) {
  int asked = 0;
  const PolicyInputs inputs{kDefault, [&]() -> const model::Tuning* {
                              ++asked;
                              return nullptr;
                            }};
  for (const char* text : {"none", "single", "static:2", "min_bytes", "timer", "learned"})
    EXPECT_TRUE(make_policy(text, inputs).has_value()) << text;
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(make_policy("table", inputs).has_value());
  EXPECT_TRUE(make_policy("ploggp", inputs).has_value());
  EXPECT_EQ(asked, 2);
}

TEST(PartPolicy, TableAppliesGroupsAndQueuePairs) {
  model::Tuning tuning;
  tuning.entries = {{8, 65536, 2, 4}, {8, 1 << 20, 4, 0}};
  const PolicyPointer table = parsed("table", &tuning);
  EXPECT_EQ(table->groups(8, 8192), (std::vector<std::uint32_t>{0, 4}));
  EXPECT_EQ(table->queues(8, 8192), 4u);
  EXPECT_EQ(table->queues(8, 1 << 17), 0u) << "not searched";
  EXPECT_EQ(table->queues(4, 8192), 0u) << "no entry";
  EXPECT_EQ(parsed("static:2")->queues(8, 8192), 0u);
}

/// Option `policy` and make_policy() have one table.
TEST(PartPolicy, MakesEachFormThatTheOptionAccepts) {
  const auto rows = Config().rows();
  const Config::Row& row = *std::ranges::find(rows, "policy", &Config::Row::name);
  std::istringstream forms{std::string(row.range)};
  std::size_t count = 0;
  for (std::string form; std::getline(forms >> std::ws, form, '|'); ++count) {
    form = form.substr(0, form.find_first_of(" ["));
    if (form.ends_with(":N")) form.back() = '3';
    Config config;
    std::string problem;
    EXPECT_TRUE(config.set("policy", form, &problem).ok()) << problem;
    parsed(form);
    EXPECT_NE(row.doc.find("`" + form.substr(0, form.find(':'))), std::string_view::npos) << form;
  }
  EXPECT_GE(count, 8u);
  parsed(Config().policy);
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
                           "static:1K",
                           "static: 1",
                           "static:4294967297",
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
                           "timer:3K",
                           "none|single",
                           "[:BYTES]"})
    EXPECT_EQ(make_policy(text, {kDefault}).error().code(), Errc::kBadOption) << text;
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
      const auto first = parsed("static:" + std::to_string(groups))->groups(partitions, 8);
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
        const PolicyInputs inputs{least};
        const auto first = (*make_policy("min_bytes", inputs))->groups(partitions, bytes);
        ASSERT_EQ(first, (*make_policy("learned", inputs))->groups(partitions, bytes));
        expect_balanced(first, partitions);
        const std::uint64_t per_group = partitions / first.size();
        ASSERT_TRUE(first.size() == 1 || per_group * bytes >= least);
      }
    }
  }
}

TEST(PartPolicy, NoneAndSingle) {
  EXPECT_EQ(parsed("none")->groups(3, 8), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(parsed("single")->groups(3, 8), std::vector<std::uint32_t>{0});
  const auto most = static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(parsed("static:2")->groups(most, 8), (std::vector<std::uint32_t>{0, most / 2}));
}

std::size_t groups_of(const Policy& policy, std::uint32_t partitions, std::uint64_t bytes) {
  const auto first = policy.groups(partitions, bytes / partitions);
  expect_balanced(first, partitions);
  return first.size();
}

// A deadline is a word's, so each group has one of its own.
TEST(PartPolicy, GroupsOfATimerHaveAWordEach) {
  const PolicyPointer made = parsed("timer");
  const Policy& policy = *made;
  for (std::uint32_t partitions = 1; partitions <= 300; ++partitions) {
    const Layout layout =
        std::move(Layout::make(partitions, policy.groups(partitions, 64))).value();
    EXPECT_TRUE(layout.roots().empty()) << partitions;
    EXPECT_EQ(layout.words().size(), (partitions + 31) / 32) << partitions;
    for (const Word& word : layout.words()) EXPECT_EQ(word.starts, 1u) << partitions;
  }
}

/// docs/design/model.md, table I; between its sizes the nearest one in log2.
TEST(PartPolicy, WithoutATuningTheRuleIsThePapersTable) {
  for (const char* text : {"table", "ploggp", "ploggp:0"}) {
    const PolicyPointer made = parsed(text);
    const Policy& policy = *made;
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
}

TEST(PartPolicy, TableTakesTheEntryAtOrBelow) {
  model::Tuning tuning;
  tuning.entries = {{8, 1 << 20, 1}, {8, 4 << 20, 8}, {32, 1 << 20, 2}};
  const PolicyPointer made = parsed("table", &tuning);
  const Policy& policy = *made;
  EXPECT_EQ(groups_of(policy, 8, 1 << 20), 1u);
  EXPECT_EQ(groups_of(policy, 8, (4 << 20) - 8), 1u);
  EXPECT_EQ(groups_of(policy, 8, 4 << 20), 8u);
  EXPECT_EQ(groups_of(policy, 32, 64 << 20), 2u);
  EXPECT_EQ(groups_of(policy, 16, 64 << 20), 16u);  // the rule: there is no entry
  EXPECT_EQ(groups_of(policy, 32, 512 << 10), 2u);  // the rule: all are above
  EXPECT_EQ(groups_of(*parsed("ploggp", &tuning), 8, 1 << 20),
            2u);  // the rule: there are no parameters
}

/// 8 partitions of 1024 bytes, 1 ns a byte, h 100 ns, o_s 50 ns, o_r 100 ns: after o_s + L + o_r, n
/// groups of k bytes are over at G (k - 1) + max(delay, (n - 1) (h + G (k - 1))):
///   n = 1: 8191 + delay; 2: 4095 + max(delay, 4195); 4: 2047 + max(delay, 6441);
///   8: 1023 + max(delay, 7861)
TEST(PartPolicy, PloggpFollowsTheModel) {
  model::Tuning tuning;
  tuning.ranges = {{1, 1 << 20, {1000, 50, 100, 100, 1, 0, 0}}};
  const auto groups = [&](const char* text, std::uint32_t partitions, std::uint64_t bytes) {
    return groups_of(*parsed(text, &tuning), partitions, bytes);
  };
  EXPECT_EQ(groups("ploggp:0", 8, 8192), 1u);     // 8191, 8290, 8488, 8884
  EXPECT_EQ(groups("ploggp:100", 8, 8192), 2u);   // 8291, 8290, 8488, 8884
  EXPECT_EQ(groups("ploggp:4395", 8, 8192), 4u);  // 12586, 8490, 8488, 8884
  EXPECT_EQ(groups("ploggp:6836", 8, 8192), 4u);  // 15027, 10931, 8883, 8884
  EXPECT_EQ(groups("ploggp:6838", 8, 8192), 8u);  // 15029, 10933, 8885, 8884
  EXPECT_EQ(groups("ploggp:6836ns", 8, 8192), 4u);
  EXPECT_EQ(groups("ploggp:4us", 8, 8192), 2u);  // 12191, 8290, 8488, 8884
  EXPECT_EQ(groups("ploggp:2s", 8, 8192), 8u);
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
  EXPECT_EQ(groups_of(*parsed("ploggp", &tuning), 16, 64 << 10), 8u);  // of 8 KiB; 16 are of 4 KiB
}

}  // namespace
}  // namespace larklane::part
