// Communicators on several lanes: by the hints of their creation, or each tag on its lane.

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "base/clock.hpp"
#include "msg/protocol/by_tag.hpp"
#include "msg/protocol/communicator.hpp"
#include "unit/communicator_job.hpp"

namespace larklane::msg {
namespace {

Job::Options with_lanes(Job::Options options) {
  options.lanes.count_max = 4;
  return options;
}
class CommunicatorLanesTest : public CommunicatorBase {
 protected:
  CommunicatorLanesTest() : CommunicatorBase(with_lanes({})) {}
};

TEST_F(CommunicatorLanesTest, HintsSpreadTagsOverLanes) {
  Hints hints;
  hints.no_any_source = hints.no_any_tag = true;
  const auto all = open_all(1, hints);
  for (std::uint64_t tag = 0; tag < 40; ++tag) {
    std::uint64_t value = tag * 3;
    if (tag % 2 == 0) send(*all[0], 1, static_cast<std::uint32_t>(tag), bytes_of(value));
    if (tag % 2 == 0) {
      expect_value(*all[1], 0, static_cast<std::int64_t>(tag), value);
      continue;
    }
    std::uint64_t into = 0;
    Pending& received = receive(*all[1], 0, static_cast<std::int64_t>(tag), bytes_of(into));
    send(*all[0], 1, static_cast<std::uint32_t>(tag), bytes_of(value));
    EXPECT_TRUE(finish(&received).status.ok());
    EXPECT_EQ(into, value);
  }
  int lanes = 0;
  for (std::uint32_t number = 0; number < 4; ++number)
    lanes += engine(1).lane_of(number).value()->packets().counts().delivered != 0;
  EXPECT_EQ(lanes, 4);
  for (Communicator* const one : all) one->close();
}

class CommunicatorByTagTest : public CommunicatorBase {
 protected:
  CommunicatorByTagTest() : CommunicatorBase(options_of(Lanes::by_tag)) {}
  /// A lane's messages so far.
  std::uint64_t delivered(int rank, std::uint32_t lane) {
    return engine(rank).lane_of(lane).value()->packets().counts().delivered;
  }
};

TEST_F(CommunicatorByTagTest, TagsAreSpreadOverLanes) {
  const auto all = open_all(1);
  for (std::uint64_t tag = 0; tag < 40; ++tag) {
    std::uint64_t value = tag * 3;
    send(*all[0], 1, static_cast<std::uint32_t>(tag), bytes_of(value));
    expect_value(*all[1], tag % 2 == 0 ? kAnySource : 0, static_cast<std::int64_t>(tag), value);
  }
  for (std::uint32_t lane = 0; lane < 4; ++lane) EXPECT_GT(delivered(1, lane), 5u);
}

// Programs number their threads' tags in steps.
TEST(ByTagWays, TagsInStepsOfAPowerOfTwoTakeDifferentWays) {
  for (const std::uint32_t ways : {1u, 2u, 4u, 8u, 16u, 64u})
    for (std::uint32_t step = 1; step < 1u << 20; step *= 2) {
      std::set<std::uint32_t> taken;
      for (std::uint32_t nth = 0; nth < ways; ++nth)
        taken.insert(ByTag::way_of(step * (3 * ways + nth), ways));
      EXPECT_EQ(taken.size(), ways) << step;
      EXPECT_LT(*taken.rbegin(), ways);
    }
}

TEST_F(CommunicatorByTagTest, WithoutTheEnginesOptionThereIsOneLane) {
  Job::Options options = options_of(Lanes::by_tag);
  options.lanes_by_tag = false;
  Job other(options);
  Hints hints;
  hints.lanes_by_tag = Hints::LanesByTag::by_visibility;
  constexpr int members[] = {0, 1};
  Communicator& from = **other.at(0).engine->open(id_of(1), members, 0, hints);
  Communicator& at = **other.at(1).engine->open(id_of(1), members, 1, hints);
  for (std::uint64_t tag = 0; tag < 10; ++tag)
    send(from, 1, static_cast<std::uint32_t>(tag), bytes_of(tag));
  other.settle();
  std::uint64_t into = 0;
  for (std::uint64_t tag = 0; tag < 10; ++tag) {
    Pending& one = receive(at, 0, kAnyTag, bytes_of(into));
    ASSERT_TRUE(is_done(one));
    release(one);
    EXPECT_EQ(into, tag);
  }
}

// A message that finds its ring full holds back those of other lanes.
TEST_F(CommunicatorByTagTest, NoLanePassesTheBacklog) {
  const auto all = open_all(1);
  std::vector<std::byte> from(300), into(300);
  std::uint64_t count = 0;
  const auto send_one = [&](std::uint32_t tag) {
    std::memcpy(from.data(), &count, sizeof count);
    EXPECT_EQ(send(*all[0], 1, tag, bytes_of(from)), nullptr);
    ++count;
  };
  for (std::uint32_t tag = 0; tag < 4; ++tag) send_one(tag);
  job_.settle();
  while (engine(0).is_quiet()) send_one(1);
  for (std::uint32_t tag = 0; tag < 4; ++tag) send_one(tag);
  EXPECT_FALSE(engine(0).is_quiet());
  for (std::uint64_t i = 0; i < count; ++i) {
    EXPECT_TRUE(finish(&receive(*all[1], 0, kAnyTag, bytes_of(into))).status.ok());
    std::uint64_t number = 0;
    std::memcpy(&number, into.data(), sizeof number);
    ASSERT_EQ(number, i);
  }
  job_.settle();
  EXPECT_TRUE(engine(0).is_quiet());
}

TEST_F(CommunicatorByTagTest, ReceivesOfBeforeAreOlderThanTheWildcard) {
  const auto all = open_all(1);
  std::uint64_t into[4] = {}, value = 1;
  Pending& of_tag = receive(*all[1], 0, 2, bytes_of(into[0]));
  Pending& of_any_source = receive(*all[1], kAnySource, 2, bytes_of(into[1]));
  Pending& of_any = receive(*all[1], 0, kAnyTag, bytes_of(into[2]));
  Pending& later = receive(*all[1], 0, 2, bytes_of(into[3]));
  Pending* const wanted[] = {&of_tag, &of_any_source, &of_any, &later};
  for (Pending* const one : wanted) {
    send(*all[0], 1, 2, bytes_of(value));
    EXPECT_TRUE(finish(one).status.ok());
    ++value;
  }
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(into[i], i + 1);
  Pending& gone = receive(*all[1], 0, kAnyTag, bytes_of(value));
  EXPECT_TRUE(Communicator::cancel(gone));
  EXPECT_TRUE(finish(&gone).is_cancelled);
}

// Many calls without a wildcard: back to a lane for each tag, with all that waits.
TEST_F(CommunicatorByTagTest, AfterTheWildcardsEachTagIsAloneAgain) {
  const auto all = open_all(1);
  std::uint64_t into = 0;
  Envelope seen{};
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t value = 0; value < 20; ++value)
      send(*all[0], 1, static_cast<std::uint32_t>(value % 5), bytes_of(value));
    job_.settle();
    ASSERT_TRUE(all[1]->look(0, kAnyTag, &seen));
    EXPECT_EQ(seen.tag, 0u);
    Pending& waiting = receive(*all[1], 0, 9, bytes_of(into));
    for (int calls = 0; calls < 600; ++calls) EXPECT_FALSE(all[1]->look(0, 7, &seen));
    for (std::uint64_t value = 0; value < 10; ++value)
      expect_value(*all[1], 0, static_cast<std::int64_t>(value % 5), value);
    for (std::uint64_t value = 10; value < 20; ++value) expect_value(*all[1], 0, kAnyTag, value);
    std::uint64_t last = 30;
    send(*all[0], 1, 9, bytes_of(last));
    EXPECT_TRUE(finish(&waiting).status.ok());
    EXPECT_EQ(into, 30u);
  }
}

// Programs that poll with MPI_ANY_TAG keep their lanes, as long as no message waits.
TEST_F(CommunicatorByTagTest, AProbeThatFindsNothingChangesNothing) {
  const auto all = open_all(1);
  std::uint64_t value = 1, into = 0;
  Envelope seen{};
  EXPECT_FALSE(all[1]->look(kAnySource, kAnyTag, &seen));
  EXPECT_EQ(all[1]->take(kAnySource, kAnyTag, &seen), nullptr);
  EXPECT_FALSE(all[1]->has_wide_order());
  // Also beside receives, and after messages that they have got, over rings of either kind.
  for (std::uint32_t round = 0; round < 100; ++round) {
    Pending& waiting = receive(*all[1], 0, round % 8, bytes_of(into));
    EXPECT_FALSE(all[1]->look(0, kAnyTag, &seen));
    send(*all[0], 1, round % 8, bytes_of(value));
    EXPECT_TRUE(finish(&waiting).status.ok());
    send(*all[0], 1, 9, bytes_of(value));
    expect_value(*all[1], 0, 9, value);
    EXPECT_FALSE(all[1]->look(kAnySource, kAnyTag, &seen));
  }
  EXPECT_FALSE(all[1]->has_wide_order());
  send(*all[0], 1, 5, bytes_of(value));
  job_.settle();
  EXPECT_TRUE(all[1]->look(kAnySource, kAnyTag, &seen));
  EXPECT_TRUE(all[1]->has_wide_order());
  expect_value(*all[1], 0, 5, value);
  // Back to a lane for each tag, although the program goes on polling.
  for (int calls = 0; calls < 600; ++calls) {
    EXPECT_FALSE(all[1]->look(0, kAnyTag, &seen));
    EXPECT_FALSE(all[1]->look(0, 7, &seen));
  }
  EXPECT_FALSE(all[1]->has_wide_order());
}

TEST_F(CommunicatorByTagTest, TheDeathOfAPeerEndsReceivesOfEitherMode) {
  for (const bool has_wildcard : {false, true}) {
    Job other(options_of(Lanes::by_tag));
    Hints hints;
    hints.lanes_by_tag = Hints::LanesByTag::by_visibility;
    constexpr int members[] = {0, 1};
    Communicator& at = **other.at(0).engine->open(id_of(1), members, 0, hints);
    std::vector<std::uint64_t> into(6);
    std::vector<Pending*> posted;
    for (std::uint32_t tag = 0; tag < 4; ++tag)
      posted.push_back(&receive(at, 1, tag, bytes_of(into[tag])));
    if (has_wildcard) posted.push_back(&receive(at, 1, kAnyTag, bytes_of(into[4])));
    Pending& of_any_source = receive(at, kAnySource, 3, bytes_of(into[5]));
    other.settle();
    for (auto& link : other.at(0).links) link->end(Errc::kPeerDown);
    for (int turns = 0; turns < 10; ++turns) other.step();
    for (Pending* const one : posted) {
      ASSERT_TRUE(is_done(*one));
      EXPECT_EQ(outcome(*one).status.code(), Errc::kPeerDown);
      release(*one);
    }
    EXPECT_FALSE(is_done(of_any_source));
    EXPECT_TRUE(Communicator::cancel(of_any_source));
    release(of_any_source);
  }
}

TEST_F(CommunicatorByTagTest, MembersThatDifferAreRefused) {
  const Creation creation(engine(1));
  std::uint64_t value = 1;
  send(open(0, 1), 1, 1, bytes_of(value));
  job_.settle();
  constexpr int members[] = {0, 1};
  EXPECT_EQ(engine(1).open(id_of(1), members, 1, {}).error().code(), Errc::kInvalidArgument);
  expect_value(open(1, 1), 0, 1, 1);
}

TEST_F(CommunicatorByTagTest, ARecordOnAnotherTagsLaneFailsItsLink) {
  const auto all = open_all(1);
  std::uint64_t value = 1;
  for (std::uint32_t tag = 0; tag < 4; ++tag) send(*all[0], 1, tag, bytes_of(value));
  job_.settle();
  Connection& lane = *engine(0).connection(*engine(0).lane_of(0).value(), 1);
  auto number = lane.announce(id_of(1), 0, true);
  ASSERT_TRUE(number);
  for (std::uint32_t tag = 0; tag < 2; ++tag)  // one of them is another lane's
    (void)lane.send_stamped(*number, tag, bytes_of(value), 1);
  job_.settle();
  EXPECT_TRUE(engine(1).is_lost(0));
}

}  // namespace
}  // namespace larklane::msg
