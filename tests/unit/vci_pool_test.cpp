// The lanes of a fabric: which lane each channel gets, and that a thread that waits on one polls
// all of them.

#include "vci/vci_pool.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "vci_fake.hpp"

namespace larklane::vci {
namespace {

TEST(Mapping, NamesAreParsed) {
  EXPECT_EQ(parse_mapping("spread").value(), Mapping::spread);
  EXPECT_EQ(parse_mapping("thread").value(), Mapping::thread);
  EXPECT_EQ(parse_mapping("communicator").value(), Mapping::communicator);
  EXPECT_EQ(parse_mapping("one").value(), Mapping::one);
  EXPECT_EQ(parse_mapping("two").error().code(), Errc::kBadOption);
}

TEST(Mapping, TheFirstOfTheLeastUsedFromAPlaceOn) {
  const std::uint32_t equal[] = {1, 1, 1, 1};
  for (std::uint32_t from = 0; from < 4; ++from) EXPECT_EQ(least_used(equal, from), from);
  const std::uint32_t used[] = {2, 0, 3, 0};
  EXPECT_EQ(least_used(used, 0), 1u);
  EXPECT_EQ(least_used(used, 2), 3u);
  EXPECT_EQ(least_used(used, 3), 3u);
  EXPECT_EQ(least_used(std::span(used, 1), 0), 0u);
}

TEST(Mapping, ByItselfThereIsALaneForEachCore) {
  EXPECT_EQ(lane_count(Mapping::spread, 0, 0), 1u);
  EXPECT_EQ(lane_count(Mapping::spread, 0, 6), 6u);
  EXPECT_EQ(lane_count(Mapping::thread, 0, 128), 16u);
  EXPECT_EQ(lane_count(Mapping::communicator, 40, 2), 40u);
  EXPECT_EQ(lane_count(Mapping::one, 40, 6), 1u);
}

TEST(Mapping, AllLanesAreDueAfterSoManyTurnsThatFoundNothing) {
  MissedTurns turns;
  for (int round = 0; round < 3; ++round)
    for (int turn = 1; turn <= 256; ++turn) EXPECT_EQ(turns.add(false, 256), turn == 256);
  for (int turn = 1; turn <= 16 * 256; ++turn) EXPECT_EQ(turns.add(true, 256), turn == 16 * 256);
}

/// Turns until others are polled.
int turns_till_look(SharedTurns& turns, bool found) {
  int count = 1;
  while (!turns.add(found)) ++count;
  return count;
}

TEST(Mapping, WithoutStraysAllLanesAreDueAfterSoManyTurns) {
  SharedTurns turns;
  EXPECT_EQ(turns_till_look(turns, false), 1);
  for (const bool found : {false, true, false}) {
    EXPECT_TRUE(turns.are_all_due(256));
    turns.pause(false, false, 256);
    EXPECT_EQ(turns_till_look(turns, found), found ? 16 * 256 : 256);
  }
}

TEST(Mapping, AStrayOnWhichSomethingIsFoundHasAsManyTurns) {
  SharedTurns turns;
  EXPECT_EQ(turns_till_look(turns, true), 1);
  EXPECT_TRUE(turns.are_all_due(256));
  for (int turn = 1; turn < 16 * 256; ++turn) {
    turns.pause(true, true, 256);
    EXPECT_EQ(turns_till_look(turns, true), 1);
    EXPECT_FALSE(turns.are_all_due(256)) << turn;
  }
  turns.pause(true, true, 256);
  EXPECT_EQ(turns_till_look(turns, true), 1);
  EXPECT_TRUE(turns.are_all_due(256)) << "a busy stray must not keep us from the rest";
}

TEST(Mapping, AStrayOnWhichNothingIsFoundHasEverFewerTurns) {
  SharedTurns turns;
  EXPECT_EQ(turns_till_look(turns, true), 1);
  EXPECT_TRUE(turns.are_all_due(256));
  turns.pause(true, true, 256);
  EXPECT_EQ(turns_till_look(turns, true), 1);
  for (int pause = 2; pause < 16 * 256; pause *= 2) {
    EXPECT_EQ(turns.are_all_due(256), false) << pause;
    turns.pause(true, false, 256);
    EXPECT_EQ(turns_till_look(turns, true), pause);
  }
  (void)turns.are_all_due(256);
  for (int again = 0; again < 2; ++again) {
    turns.pause(true, false, 256);
    EXPECT_EQ(turns_till_look(turns, true), 16 * 256);
    EXPECT_TRUE(turns.are_all_due(256));
  }
}

/// All lanes have one.
struct OneReceiver final : VciPool::Receivers {
  explicit OneReceiver(net::Receiver& one) : receiver(one) {}
  net::Receiver& of_lane(std::uint32_t) override { return receiver; }
  net::Receiver& receiver;
};

/// A pool on a network that follows the test.
struct FakePool {
  explicit FakePool(VciPool::Options options) : pool(fabric, receivers, options) {}
  FakeFabric fabric;
  NoReceiver receiver;
  OneReceiver receivers{receiver};
  VciPool pool;
};

TEST(VciPool, LanesAreMadeWhenTheyAreWanted) {
  FakePool of({3, Mapping::spread, 4});
  EXPECT_TRUE(of.fabric.lanes.empty());
  Vci* const second = of.pool.at(1).value();
  EXPECT_EQ(of.fabric.lanes.size(), 1u);
  EXPECT_EQ(of.pool.at(1).value(), second);
  EXPECT_NE(of.pool.at(2).value(), second);
  EXPECT_EQ(of.fabric.lanes.size(), 2u);
}

TEST(VciPool, ChannelsAreSpreadAndGiveTheirPlacesBack) {
  FakePool of({3, Mapping::spread, 4});
  std::vector<VciPool::Place> places;
  for (const std::uint32_t expected : {1u, 2u, 0u, 1u, 2u, 0u}) {
    EXPECT_EQ(of.pool.choose(1, 0), expected);
    places.push_back(of.pool.take_place(expected));
  }
  places.erase(places.begin() + 2);  // a place on lane 0
  EXPECT_EQ(of.pool.choose(1, 0), 0u);
}

TEST(VciPool, AThreadsChannelsShareALaneAndACommunicatorsDo) {
  FakePool thread({64, Mapping::thread, 4}), communicator({5, Mapping::communicator, 4});
  const std::uint32_t mine = thread.pool.choose(0, 1);
  const auto place = thread.pool.take_place(mine);
  EXPECT_EQ(thread.pool.choose(0, 2), mine);
  std::uint32_t others = mine;
  std::thread([&] { others = thread.pool.choose(0, 1); }).join();
  EXPECT_NE(others, mine);
  EXPECT_EQ(communicator.pool.choose(0, 12), 2u);
}

TEST(VciPool, ADeadLaneGetsNoChannelAsLongAsOthersLive) {
  for (const Mapping mapping : {Mapping::spread, Mapping::communicator}) {
    FakePool of({2, mapping, 4});
    for (std::uint32_t index = 0; index < 2; ++index) ASSERT_TRUE(of.pool.at(index).has_value());
    of.fabric.lanes[0]->poll_error = Errc::kSystem;
    (void)of.pool.at(0).value()->progress();
    EXPECT_EQ(of.pool.choose(0, 0), 1u);
    of.fabric.lanes[1]->poll_error = Errc::kSystem;
    (void)of.pool.at(1).value()->progress();
    EXPECT_EQ(of.pool.choose(0, 0), 0u);
  }
}

TEST(VciPool, ALaneThatCannotBeMadeIsReportedAndTriedAgain) {
  FakePool of({1, Mapping::one, 4});
  of.fabric.open_error = Errc::kNoMemory;
  EXPECT_EQ(of.pool.at(0).error().code(), Errc::kNoMemory);
  of.fabric.open_error = {};
  EXPECT_TRUE(of.pool.at(0).has_value());
}

// The property behind figure 9 of the lanes' paper: a waiting thread depends on a lane on which no
// thread waits.
TEST(VciPool, AWaitingThreadPollsItsOwnLaneFirstAndSometimesAll) {
  constexpr std::uint32_t kMisses = 4;
  FakePool of({3, Mapping::spread, kMisses});
  for (std::uint32_t index = 0; index < 3; ++index) ASSERT_TRUE(of.pool.at(index).has_value());
  Vci& own = *of.pool.at(1).value();
  const auto polls = [&](std::size_t lane) { return of.fabric.lanes[lane]->polls; };
  for (std::uint32_t turn = 0; polls(0) == 0 && turn < 100; ++turn) (void)of.pool.progress(own);
  ASSERT_EQ(polls(0), 1u) << "whatever the thread had missed before";
  const std::uint32_t before = polls(1);
  of.fabric.lanes[2]->arrived = {8};
  for (std::uint32_t turn = 1; turn < kMisses; ++turn) EXPECT_EQ(of.pool.progress(own), 0u);
  EXPECT_EQ(polls(0), 1u);
  EXPECT_TRUE(of.receiver.heard.empty());
  EXPECT_EQ(of.pool.progress(own), 1u);
  EXPECT_EQ(of.receiver.heard, std::vector<std::uint32_t>{8});
  EXPECT_EQ(polls(0), 2u);
  EXPECT_EQ(polls(1), before + kMisses) << "its own has had its turn";
}

TEST(VciPool, ABusyLaneDoesNotStarveOthers) {
  constexpr std::uint32_t kMisses = 4;
  FakePool of({2, Mapping::spread, kMisses});
  for (std::uint32_t index = 0; index < 2; ++index) ASSERT_TRUE(of.pool.at(index).has_value());
  for (std::uint32_t turn = 0; turn < 16 * kMisses; ++turn) {
    of.fabric.lanes[0]->arrived = {1};
    (void)of.pool.progress(*of.pool.at(0).value());
  }
  EXPECT_GE(of.fabric.lanes[1]->polls, 1u);
}

TEST(VciPool, AWaitingThreadPollsThePoolsThatWaitTogether) {
  constexpr std::uint32_t kMisses = 4;
  FakePool own({1, Mapping::spread, kMisses}), other({1, Mapping::spread, kMisses});
  auto gone = std::make_unique<FakePool>(VciPool::Options{1, Mapping::spread, kMisses});
  own.pool.wait_together(gone->pool);
  own.pool.wait_together(other.pool);
  for (FakePool* const of : {&own, &other, gone.get()}) ASSERT_TRUE(of->pool.at(0).has_value());
  const auto wait = [&](FakePool& of) {
    for (std::uint32_t turn = 0; turn < 2 * kMisses; ++turn)
      (void)of.pool.progress(*of.pool.at(0).value());
  };
  other.fabric.lanes[0]->arrived = {8};
  gone->fabric.lanes[0]->arrived = {9};
  wait(own);
  EXPECT_EQ(other.receiver.heard, std::vector<std::uint32_t>{8});
  EXPECT_EQ(gone->receiver.heard, std::vector<std::uint32_t>{9});
  gone.reset();
  own.fabric.lanes[0]->arrived = {7};
  wait(other);
  EXPECT_EQ(own.receiver.heard, std::vector<std::uint32_t>{7});
}

TEST(VciPool, TheHelperPollsAll) {
  FakePool of({2, Mapping::spread, 4});
  EXPECT_EQ(of.pool.progress_all(), 0u);
  for (std::uint32_t index = 0; index < 2; ++index) ASSERT_TRUE(of.pool.at(index).has_value());
  for (auto& lane : of.fabric.lanes) lane->arrived = {1};
  EXPECT_EQ(of.pool.progress_all(), 2u);
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
