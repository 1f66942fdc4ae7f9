// Messages on lanes by tag against an oracle of vector clocks, over seeds.

#include <gtest/gtest.h>

#include "lanes_world.hpp"
#include "msg_seeds.hpp"

namespace larklane::msg {
namespace {

TEST(MsgLanes, NoMatchOvertakesAMessageThatHappenedBefore) {
  for_seeds(16, [](std::uint64_t seed) {
    LanesWorld({.seed = seed,
                .sources = 1 + static_cast<std::uint32_t>(seed % 2),
                .senders = 1 + static_cast<std::uint32_t>(seed % 4),
                .receivers = 1 + static_cast<std::uint32_t>(seed % 3),
                .messages = 1500,
                .has_clock = seed % 8 != 0})
        .run();
  });
}

TEST(MsgLanes, OneThreadCountsAndASecondOneIsAbove) {
  LaneStamps<> stamps(true);
  const std::uint64_t first = stamps.next();
  const std::uint64_t second = stamps.next();
  EXPECT_LT(first, second);
  EXPECT_LT(second, LaneStamps<>::kShared);
  std::uint64_t other = 0;
  std::thread([&] { other = stamps.next(); }).join();
  EXPECT_LT(second, other);
  EXPECT_LT(other, stamps.next());
}

/// Rings without threads. A test puts entries there, with its own stamps.
struct QuietRings {
  std::uint32_t sources() const { return 1; }
  std::uint64_t tail(std::uint32_t, std::uint32_t lane) const { return put[lane].size(); }
  std::uint64_t head(std::uint32_t, std::uint32_t lane) const { return taken[lane]; }
  LaneEntry& front(std::uint32_t, std::uint32_t lane) { return *put[lane][taken[lane]]; }
  void pop(std::uint32_t, std::uint32_t lane) { ++taken[lane]; }
  std::array<std::vector<LaneEntry*>, 2> put;
  std::array<std::uint64_t, 2> taken{};
};
struct QuietMatcher {
  void exact(std::uint32_t lane, LaneEntry& entry) { table[lane].push_back(&entry); }
  void wide(LaneEntry& entry) { unexpected.push_back(&entry); }
  void move_receives_wide(std::uint32_t) {}
  LaneEntry* take_exact(std::uint32_t lane) {
    if (table[lane].empty()) return nullptr;
    LaneEntry* const entry = table[lane].front();
    table[lane].erase(table[lane].begin());
    return entry;
  }
  bool needs_wide() const { return false; }
  void move_exact() {
    for (LaneEntry* entry : unexpected) table[entry->lane_index].push_back(entry);
    unexpected.clear();
  }
  std::array<std::vector<LaneEntry*>, 2> table;
  std::vector<LaneEntry*> unexpected;
};

TEST(MsgLanes, ADeliveredMessageKeepsItsPlaceThroughExactMode) {
  QuietRings rings;
  QuietMatcher matcher;
  LaneOrder<QuietRings, QuietMatcher, 2> order(rings, matcher);
  LaneEntry later, earlier;  // of two senders that know nothing of each other
  later.stamp = LaneStamps<>::kCounted + 9;
  earlier.stamp = LaneStamps<>::kCounted + 5;
  rings.put[0].push_back(&later);
  order.with_any_tag([] {});
  rings.put[1].push_back(&earlier);
  order.with_any_tag([] {});
  const std::vector<LaneEntry*> shown = {&later, &earlier};
  EXPECT_EQ(matcher.unexpected, shown);
  EXPECT_TRUE(order.try_exact());
  EXPECT_TRUE(matcher.unexpected.empty());
  order.with_any_tag([] {});
  EXPECT_EQ(matcher.unexpected, shown);
}

}  // namespace
}  // namespace larklane::msg
