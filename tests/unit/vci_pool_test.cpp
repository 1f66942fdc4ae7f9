// The lanes of a fabric: who gets which, and that a thread that waits on one polls all of them.

#include "vci/vci_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "vci_fake.hpp"

namespace larklane::vci {
namespace {

TEST(Mapping, NamesAreParsed) {
  EXPECT_EQ(parse_mapping("round_robin").value(), Mapping::round_robin);
  EXPECT_EQ(parse_mapping("thread").value(), Mapping::thread);
  EXPECT_EQ(parse_mapping("one").value(), Mapping::one);
  EXPECT_EQ(parse_mapping("two").error().code(), Errc::kBadOption);
}

TEST(Mapping, EachPolicyHasItsLane) {
  for (std::uint32_t lanes = 1; lanes <= 8; ++lanes)
    for (std::uint64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(lane_of(Mapping::round_robin, i, 3, lanes), i % lanes);
      EXPECT_EQ(lane_of(Mapping::thread, 3, i, lanes), i % lanes);
      EXPECT_EQ(lane_of(Mapping::one, i, i, lanes), 0u);
    }
}

TEST(Mapping, ByItselfThereIsALaneForEachCore) {
  EXPECT_EQ(lane_count(0, 0), 1u);
  EXPECT_EQ(lane_count(0, 6), 6u);
  EXPECT_EQ(lane_count(0, 128), 16u);
  EXPECT_EQ(lane_count(40, 2), 40u);
}

TEST(Mapping, AllLanesAreDueAfterSoManyTurnsThatFoundNothing) {
  MissedTurns turns;
  for (int round = 0; round < 3; ++round)
    for (int turn = 1; turn <= 256; ++turn) EXPECT_EQ(turns.add(false, 256), turn == 256);
  for (int turn = 1; turn <= 16 * 256; ++turn) EXPECT_EQ(turns.add(true, 256), turn == 16 * 256);
}

TEST(VciPool, LanesAreMadeWhenTheyAreWanted) {
  FakeFabric fabric;
  NoReceiver receiver;
  VciPool pool(fabric, receiver, {3, Mapping::round_robin, 4});
  EXPECT_TRUE(fabric.lanes.empty());
  std::vector<Vci*> lanes;
  for (std::size_t i = 0; i < 7; ++i) {
    lanes.push_back(pool.for_channel().value());
    EXPECT_EQ(fabric.lanes.size(), std::min<std::size_t>(i + 1, 3));
  }
  EXPECT_EQ(std::set<Vci*>(lanes.begin(), lanes.end()).size(), 3u);
  EXPECT_EQ(lanes[0], lanes[3]);
  EXPECT_EQ(pool.at(1).value(), lanes[1]);
}

TEST(VciPool, AThreadsChannelsShareALane) {
  FakeFabric fabric;
  NoReceiver receiver;
  VciPool pool(fabric, receiver, {64, Mapping::thread, 4});
  Vci* const mine = pool.for_channel().value();
  EXPECT_EQ(pool.for_channel().value(), mine);
  Vci* others = nullptr;
  std::thread([&] { others = pool.for_channel().value(); }).join();
  EXPECT_NE(others, mine);
  EXPECT_EQ(fabric.lanes.size(), 2u);
}

TEST(VciPool, ALaneThatCannotBeMadeIsToldAndTriedAgain) {
  FakeFabric fabric;
  NoReceiver receiver;
  fabric.open_error = Errc::kNoMemory;
  VciPool pool(fabric, receiver, {1, Mapping::one, 4});
  EXPECT_EQ(pool.for_channel().error().code(), Errc::kNoMemory);
  fabric.open_error = {};
  EXPECT_TRUE(pool.for_channel().has_value());
}

// What figure 9 of the lanes' paper hangs on: what a thread waits for depends on a lane on which
// nobody waits.
TEST(VciPool, AWaitingThreadPollsItsOwnLaneFirstAndSometimesAll) {
  FakeFabric fabric;
  NoReceiver receiver;
  constexpr std::uint32_t kMisses = 4;
  VciPool pool(fabric, receiver, {3, Mapping::round_robin, kMisses});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pool.for_channel().has_value());
  Vci& own = *pool.at(1).value();
  const auto polls = [&](std::size_t lane) { return fabric.lanes[lane]->polls; };
  for (std::uint32_t turn = 0; polls(0) == 0 && turn < 100; ++turn) (void)pool.progress(own);
  ASSERT_EQ(polls(0), 1u) << "whatever the thread had missed before";
  const std::uint32_t before = polls(1);
  fabric.lanes[2]->arrived = {8};
  for (std::uint32_t turn = 1; turn < kMisses; ++turn) EXPECT_EQ(pool.progress(own), 0u);
  EXPECT_EQ(polls(0), 1u);
  EXPECT_TRUE(receiver.heard.empty());
  EXPECT_EQ(pool.progress(own), 1u);
  EXPECT_EQ(receiver.heard, std::vector<std::uint32_t>{8});
  EXPECT_EQ(polls(0), 2u);
  EXPECT_EQ(polls(1), before + kMisses) << "its own has had its turn";
}

TEST(VciPool, ALaneThatIsAlwaysBusyKeepsNobodyFromTheOthers) {
  FakeFabric fabric;
  NoReceiver receiver;
  constexpr std::uint32_t kMisses = 4;
  VciPool pool(fabric, receiver, {2, Mapping::round_robin, kMisses});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(pool.for_channel().has_value());
  for (std::uint32_t turn = 0; turn < 16 * kMisses; ++turn) {
    fabric.lanes[0]->arrived = {1};
    (void)pool.progress(*pool.at(0).value());
  }
  EXPECT_GE(fabric.lanes[1]->polls, 1u);
}

TEST(VciPool, TheHelperPollsAll) {
  FakeFabric fabric;
  NoReceiver receiver;
  VciPool pool(fabric, receiver, {2, Mapping::round_robin, 4});
  EXPECT_EQ(pool.progress_all(), 0u);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(pool.for_channel().has_value());
  for (auto& lane : fabric.lanes) lane->arrived = {1};
  EXPECT_EQ(pool.progress_all(), 2u);
}

TEST(VciPool, OptionsAreRead) {
  Config config;
  std::string problem;
  ASSERT_TRUE(config.set("vci_count_max", "5", &problem).ok()) << problem;
  ASSERT_TRUE(config.set("vci_mapping", "thread", &problem).ok()) << problem;
  ASSERT_TRUE(config.set("vci_misses_max", "9", &problem).ok()) << problem;
  const VciPool::Options options = VciPool::Options::of(config).value();
  EXPECT_EQ(options.count_max, 5u);
  EXPECT_EQ(options.mapping, Mapping::thread);
  EXPECT_EQ(options.misses_max, 9u);
  EXPECT_FALSE(config.set("vci_count_max", "65", &problem).ok()) << "VciPool::kCountMax";
}

}  // namespace
}  // namespace larklane::vci
