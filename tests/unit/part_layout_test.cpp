// The layout of groups in words.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "net/loop/random.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::part {
namespace {

Layout make(std::uint32_t partitions, const std::vector<std::uint32_t>& boundaries) {
  auto layout = Layout::make(partitions, boundaries);
  EXPECT_TRUE(layout.has_value());
  return std::move(layout).value();
}

/// Group of each partition, as the boundaries say; groups beyond the limit are split.
std::vector<std::uint32_t> groups_of(std::uint32_t partitions,
                                     const std::vector<std::uint32_t>& boundaries) {
  std::vector<std::uint32_t> group(partitions);
  std::uint32_t next = 0;
  for (std::size_t g = 0; g < boundaries.size(); ++g) {
    const std::uint32_t end = g + 1 < boundaries.size() ? boundaries[g + 1] : partitions;
    for (std::uint32_t p = boundaries[g]; p < end; ++p) {
      if ((p - boundaries[g]) % kGroupPartitionsMax == 0) ++next;
      group[p] = next;
    }
  }
  return group;
}

void expect_lawful(std::uint32_t partitions, const std::vector<std::uint32_t>& boundaries) {
  const Layout layout = make(partitions, boundaries);
  const auto group = groups_of(partitions, boundaries);
  ASSERT_EQ(layout.partitions(), partitions);
  const LayoutSize most =
      LayoutSize::most(partitions, static_cast<std::uint32_t>(boundaries.size()));
  ASSERT_LE(layout.words().size(), most.words);
  ASSERT_LE(layout.roots().size(), most.roots);
  // Every partition in exactly one word; words in order, without gaps.
  std::uint32_t next = 0;
  for (std::uint32_t w = 0; w < layout.words().size(); ++w) {
    const Word& word = layout.words()[w];
    ASSERT_EQ(word.first, next);
    ASSERT_GE(word.count, 1u);
    ASSERT_LE(word.count, kUnitsPerWord);
    for (std::uint32_t p = word.first; p < word.first + word.count; ++p) {
      const Cell& cell = layout.cells()[p];
      ASSERT_EQ(cell.word, w);
      ASSERT_EQ(cell.bit_mask, 1u << (p - word.first));
      ASSERT_EQ(cell.leaf_mask, word.root == kNoRoot ? 0 : 1u << word.unit);
      for (std::uint32_t q = word.first; q < word.first + word.count; ++q)
        ASSERT_EQ((cell.group_mask >> (q - word.first) & 1) != 0, group[p] == group[q]);
    }
    next += word.count;
  }
  ASSERT_EQ(next, partitions);
  // A group is within one word, or it is all of the leaves of one root.
  for (std::uint32_t p = 1; p < partitions; ++p) {
    const Word& before = layout.words()[layout.cells()[p - 1].word];
    const Word& word = layout.words()[layout.cells()[p].word];
    if (group[p - 1] == group[p] && &before != &word) {
      ASSERT_NE(word.root, kNoRoot);
      ASSERT_EQ(before.root, word.root);
    }
    if (group[p - 1] != group[p] && word.root != kNoRoot) {
      ASSERT_NE(before.root, word.root);
    }
  }
  for (std::uint32_t r = 0; r < layout.roots().size(); ++r) {
    const Root& root = layout.roots()[r];
    ASSERT_GE(root.word_count, 2u);
    ASSERT_LE(root.word_count, kUnitsPerWord);
    for (std::uint32_t unit = 0; unit < root.word_count; ++unit) {
      ASSERT_EQ(layout.words()[root.first_word + unit].root, r);
      ASSERT_EQ(layout.words()[root.first_word + unit].unit, unit);
    }
  }
}

TEST(PartLayout, EveryPartitionIsInOneWordAndOneGroup) {
  for (std::uint32_t partitions = 1; partitions <= 12; ++partitions) {
    for (std::uint32_t cuts = 0; cuts < 1u << (partitions - 1); ++cuts) {
      std::vector<std::uint32_t> boundaries{0};
      for (std::uint32_t p = 1; p < partitions; ++p)
        if ((cuts >> (p - 1) & 1) != 0) boundaries.push_back(p);
      expect_lawful(partitions, boundaries);
    }
  }
}

TEST(PartLayout, LargeGroupsHaveRoots) {
  for (std::uint32_t first : {1u, 31u, 32u, 33u, 64u, 1023u, 1024u, 1025u, 2048u, 3000u})
    for (std::uint32_t rest : {1u, 5u, 32u, 33u, 1024u, 1100u})
      expect_lawful(first + rest, {0, first});
  loop::Random random(1);
  for (int i = 0; i < 300; ++i) {
    const auto partitions = static_cast<std::uint32_t>(1 + random.below(2500));
    const std::uint64_t density = 1 + random.below(partitions);
    std::vector<std::uint32_t> boundaries{0};
    for (std::uint32_t p = 1; p < partitions; ++p)
      if (random.one_in(density)) boundaries.push_back(p);
    expect_lawful(partitions, boundaries);
  }
}

TEST(PartLayout, OnlyAscendingBoundariesFromZeroAreTaken) {
  using Boundaries = std::vector<std::uint32_t>;
  for (const Boundaries& wrong : {Boundaries{}, {1}, {0, 4}, {0, 5}, {0, 2, 2}, {0, 3, 1}})
    EXPECT_EQ(Layout::make(4, wrong).error().code(), Errc::kInvalidArgument);
  EXPECT_TRUE(Layout::make(4, Boundaries{0, 3}).has_value());
}

TEST(PartLayout, CompleteGroupsAreThoseWithAllTheirBits) {
  for (std::uint32_t cuts = 0; cuts < 1u << 7; ++cuts) {
    std::vector<std::uint32_t> boundaries{0};
    for (std::uint32_t p = 1; p < 8; ++p)
      if ((cuts >> (p - 1) & 1) != 0) boundaries.push_back(p);
    const Layout layout = make(8, boundaries);
    ASSERT_EQ(layout.has_groups(), boundaries.size() < 8);
    const auto group = groups_of(8, boundaries);
    for (std::uint32_t ready = 0; ready < 256; ++ready) {
      std::uint32_t expected = 0;
      for (std::uint32_t p = 0; p < 8; ++p) {
        bool whole = true;
        for (std::uint32_t q = 0; q < 8; ++q)
          whole = whole && (group[q] != group[p] || (ready >> q & 1) != 0);
        expected |= whole ? 1u << p : 0;
      }
      ASSERT_EQ(layout.words()[0].complete_groups(ready), expected);
    }
  }
}

TEST(PartLayout, RunsAreTheMaximalOnes) {
  loop::Random random(2);
  std::vector<std::uint32_t> all{0, 1, ~0u, 0x80000000u, 0x7fffffffu, 0xaaaaaaaau};
  for (int i = 0; i < 2000; ++i)
    all.push_back(static_cast<std::uint32_t>(random.next() & random.next()));
  for (const std::uint32_t bits : all) {
    std::uint32_t seen = 0;
    std::uint32_t end_before = 0;
    for_each_run(bits, 100, [&](part::Run run) {
      ASSERT_GE(run.count, 1u);
      ASSERT_TRUE(seen == 0 || run.first > end_before);
      for (std::uint32_t p = run.first; p < run.first + run.count; ++p) seen |= 1u << (p - 100);
      end_before = run.first + run.count;
    });
    ASSERT_EQ(seen, bits);
  }
}

TEST(PartOverlap, IsThatOfTheBytes) {
  for (std::uint32_t s = 1; s <= 64; ++s) {
    for (std::uint32_t r = 1; r <= 64; ++r) {
      const std::uint32_t bytes = std::lcm(s, r);
      std::vector<std::set<std::uint32_t>> under(r);
      for (std::uint32_t i = 0; i < bytes; ++i) under[i / (bytes / r)].insert(i / (bytes / s));
      for (std::uint32_t j = 0; j < r; ++j) {
        const part::Run run = overlap(j, r, s);
        ASSERT_EQ(run.first, *under[j].begin()) << s << " " << r << " " << j;
        ASSERT_EQ(run.first + run.count - 1, *under[j].rbegin()) << s << " " << r << " " << j;
      }
    }
  }
}

TEST(PartOverlap, IsExactForTheLargestCounts) {
  const auto most = static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(overlap(most - 1, most, most), (part::Run{most - 1, 1}));
  EXPECT_EQ(overlap(0, 1, most), (part::Run{0, most}));
  EXPECT_EQ(overlap(most - 1, most, 1), (part::Run{0, 1}));
  EXPECT_EQ(overlap(most - 2, most - 1, most), (part::Run{most - 2, 2}));
  EXPECT_EQ(overlap(most - 1, most, most - 1), (part::Run{most - 2, 1}));
  EXPECT_EQ(overlap(1, 2, most), (part::Run{most / 2, most - most / 2}));
}

}  // namespace
}  // namespace larklane::part
