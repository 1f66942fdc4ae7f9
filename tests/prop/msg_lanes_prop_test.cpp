// Messages on lanes by tag against an oracle of vector clocks, over seeds.

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

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

/// Lanes without threads. A test puts entries there, with its own stamps.
struct QuietMatcher;
struct QuietLanes {
  std::uint32_t count() const { return 2; }
  std::uint32_t sources() const { return 1; }
  template <class Work>
  void with(std::uint32_t, Work&& work) {
    work();
  }
  template <class Work>
  void with_all(Work&& work) {
    work();
  }
  bool look(std::uint32_t lane) {
    for (LaneEntry* const entry : std::exchange(shown[lane], {})) {
      entry->lane_index = lane;
      EXPECT_TRUE(order->put(*entry));
    }
    return !is_cut_short;
  }
  bool look_alone(std::uint32_t lane) { return look(lane); }
  std::array<std::vector<LaneEntry*>, 2> shown;
  bool is_cut_short = false;
  LaneOrder<QuietLanes, QuietMatcher>* order = nullptr;
};
struct QuietMatcher {
  void wide(LaneEntry& entry) { unexpected.push_back(&entry); }
  void move_receives_wide(std::uint32_t) {}
  LaneEntry* take_exact(std::uint32_t lane) {
    if (table[lane].empty()) return nullptr;
    LaneEntry* const entry = table[lane].front();
    table[lane].erase(table[lane].begin());
    return entry;
  }
  bool prepare_exact() const { return true; }
  void poked() { ++pokes; }
  void move_exact() {
    for (LaneEntry* entry : unexpected) table[entry->lane_index].push_back(entry);
    unexpected.clear();
  }
  std::array<std::vector<LaneEntry*>, 2> table;
  std::vector<LaneEntry*> unexpected;
  int pokes = 0;
};
struct QuietOrder {
  QuietOrder() {
    lanes.order = &order;
    EXPECT_TRUE(order.prepare());
  }
  QuietLanes lanes;
  QuietMatcher matcher;
  LaneOrder<QuietLanes, QuietMatcher> order{lanes, matcher};
};

TEST(MsgLanes, ADeliveredMessageKeepsItsPlaceThroughExactMode) {
  QuietOrder quiet;
  LaneEntry later, earlier;  // of two senders that know nothing of each other
  later.stamp = LaneStamps<>::kCounted + 9;
  earlier.stamp = LaneStamps<>::kCounted + 5;
  EXPECT_TRUE(quiet.order.with_any_tag(true, [] {}));
  quiet.lanes.shown[0].push_back(&later);
  EXPECT_TRUE(quiet.order.with_any_tag(true, [] {}));
  quiet.lanes.shown[1].push_back(&earlier);
  EXPECT_TRUE(quiet.order.with_any_tag(true, [] {}));
  const std::vector<LaneEntry*> shown = {&later, &earlier};
  EXPECT_EQ(quiet.matcher.unexpected, shown);
  EXPECT_TRUE(quiet.order.try_exact());
  EXPECT_TRUE(quiet.matcher.unexpected.empty());
  EXPECT_FALSE(quiet.order.put(later));
  EXPECT_TRUE(quiet.order.with_any_tag(true, [] {}));
  EXPECT_EQ(quiet.matcher.unexpected, shown);
}

TEST(MsgLanes, ALookThatIsCutShortDeliversNothing) {
  QuietOrder quiet;
  EXPECT_TRUE(quiet.order.with_any_tag(true, [] {}));
  LaneEntry entry;
  quiet.lanes.shown[0].push_back(&entry);
  quiet.lanes.is_cut_short = true;
  EXPECT_FALSE(quiet.order.with_any_tag(true, [] {}));
  EXPECT_FALSE(quiet.order.turn());
  EXPECT_FALSE(quiet.order.try_exact());
  EXPECT_TRUE(quiet.matcher.unexpected.empty());
  quiet.lanes.is_cut_short = false;
  EXPECT_TRUE(quiet.order.turn());
  EXPECT_EQ(quiet.matcher.unexpected.size(), 1u);
}

TEST(MsgLanes, APokeIsServedInEitherMode) {
  QuietOrder quiet;
  quiet.order.poke();
  EXPECT_TRUE(quiet.order.turn());
  EXPECT_EQ(quiet.matcher.pokes, 1);
  EXPECT_TRUE(quiet.order.with_any_tag(true, [] {}));
  quiet.order.poke();
  EXPECT_TRUE(quiet.order.with_any_tag(true, [] {}));
  EXPECT_EQ(quiet.matcher.pokes, 2);
}

/// Messages of a backlog, and rings with `room`.
struct QuietLink {
  QuietLink* next = nullptr;
  std::uint32_t lane = 0;
};

TEST(MsgLanes, AMessageOfAnyLaneWaitsBehindTheBacklog) {
  LaneBacklog<QuietLink> backlog;
  std::array<std::uint32_t, 2> room = {0, 5};
  std::vector<QuietLink*> pushed;
  const auto push = [&](QuietLink& link) {
    if (room[link.lane] == 0) return false;
    --room[link.lane];
    pushed.push_back(&link);
    return true;
  };
  QuietLink first{nullptr, 0}, second{nullptr, 1}, third{nullptr, 1};
  EXPECT_TRUE(backlog.send(first, push));
  EXPECT_TRUE(backlog.has_some());
  EXPECT_TRUE(backlog.send(second, push));
  EXPECT_FALSE(backlog.drain(push));
  EXPECT_TRUE(pushed.empty());
  room[0] = 1;
  EXPECT_TRUE(backlog.drain(push));
  EXPECT_FALSE(backlog.has_some());
  EXPECT_FALSE(backlog.send(third, push));
  EXPECT_EQ(pushed, (std::vector<QuietLink*>{&first, &second, &third}));
}

}  // namespace
}  // namespace larklane::msg
