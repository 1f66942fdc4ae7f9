#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "part/policy.hpp"

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
}

TEST(PartPolicy, RefusesEverythingElse) {
  for (const char* text :
       {"", "nothing", "none:1", "single:1", "static", "static:", "static:0", "static:-1",
        "static:1x", "static: 1", "min_bytes:", "min_bytes:0", "min_bytes:1KK",
        "min_bytes:18446744073709551616", "min_bytes:18446744073709551615G"})
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

}  // namespace
}  // namespace larklane::part
