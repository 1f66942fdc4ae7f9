// The progress hook's turns on communicators: no lock is waited for, and few bytes are copied.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <thread>
#include <vector>

#include "msg/protocol/communicator.hpp"
#include "unit/communicator_job.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint32_t kRecords = 16;
constexpr std::uint64_t kPart = 65536;

class HookLockTest : public CommunicatorBase, public testing::WithParamInterface<Lanes> {
 protected:
  HookLockTest() : CommunicatorBase(options_of(GetParam())) {}
};
INSTANTIATE_TEST_SUITE_P(On, HookLockTest, testing::Values(Lanes::one, Lanes::by_tag), name_of);

TEST_P(HookLockTest, AHookWaitsForNoLaneWithHeldRecords) {
  const auto all = open_all(1);
  std::uint64_t value = 5, into = 0;
  send(*all[0], 1, 1, bytes_of(value));
  Pending& received = receive(*all[1], 0, 1, bytes_of(into));
  ASSERT_EQ(job_.wanted.size(), 1u);
  const auto [one, two, number] = job_.wanted[0];
  job_.wanted.clear();
  PacketLink &a = job_.open(one, two, number), &b = job_.open(two, one, number);
  ASSERT_TRUE(a.connect(b.offer()).ok());
  ASSERT_TRUE(b.connect(a.offer()).ok());
  job_.begin(0, 1, number, one == 0 ? a : b);
  const auto turn = [&] {
    job_.wire.settle();
    (void)engine(0).try_progress(kRecords, kPart);
    (void)engine(1).try_progress(kRecords, kPart);
  };
  for (int i = 0; i < 20; ++i) turn();  // the record is held: the receiver has no link yet
  EXPECT_FALSE(is_done(received));
  job_.begin(1, 0, number, one == 0 ? b : a);
  engine(1).lane_of(number).value()->vci().exclusively(
      [&] { std::thread([&] { (void)engine(1).try_progress(kRecords, kPart); }).join(); });
  EXPECT_FALSE(is_done(received));
  for (int i = 0; i < 20; ++i) turn();
  EXPECT_TRUE(finish(&received).status.ok());
  EXPECT_EQ(into, 5u);
}

class HookTest : public CommunicatorBase, public testing::WithParamInterface<Lanes> {
 protected:
  static constexpr std::uint64_t kBytes = 10 * kPart + 5;

  HookTest() : CommunicatorBase(options_of(GetParam(), over_shm())), all_(open_all(1)) {
    std::uint64_t value = 1;
    send(*all_[0], 1, 1, bytes_of(value));
    expect_value(*all_[1], 0, 1, value);
    for (std::size_t at = 0; at < from_.size(); ++at)
      from_[at] = static_cast<std::byte>(at % 251 + 1);
    for (unsigned i = 0; i < 2; ++i) {
      received_[i] = &receive(*all_[1], 0, 1, bytes_of(into_[i]));
      sent_[i] = send(*all_[0], 1, 1, bytes_of(from_));
    }
  }
  /// Bytes that have come.
  std::uint64_t count() const {
    std::uint64_t bytes = 0;
    for (const auto& one : into_)
      bytes += one.size() - static_cast<std::uint64_t>(std::ranges::count(one, std::byte{}));
    return bytes;
  }
  void expect_bounded_turn() {
    const std::uint64_t before = count();
    (void)engine(1).try_progress(kRecords, kPart);
    EXPECT_LE(count() - before, kPart);
  }
  void expect_all() {
    for (Pending* const one : received_) EXPECT_TRUE(finish(one).status.ok());
    for (Pending* const one : sent_) EXPECT_TRUE(finish(one).status.ok());
    for (const auto& one : into_) EXPECT_EQ(one, from_);
  }

  const std::vector<Communicator*> all_;
  std::vector<std::byte> from_ = std::vector<std::byte>(kBytes);
  std::array<std::vector<std::byte>, 2> into_{std::vector<std::byte>(kBytes),
                                              std::vector<std::byte>(kBytes)};
  std::array<Pending*, 2> received_{}, sent_{};
};

INSTANTIATE_TEST_SUITE_P(On, HookTest, testing::Values(Lanes::one, Lanes::by_tag), name_of);

TEST_P(HookTest, ATurnReadsNoMoreBytesThanItMay) {
  for (int turn = 0; turn < 50 && !is_done(*received_[1]); ++turn) expect_bounded_turn();
  EXPECT_TRUE(is_done(*received_[0]));
  EXPECT_TRUE(is_done(*received_[1]));
  expect_all();
}

// A receive with any tag is matched by a turn outside the lanes' locks: the hook makes it, too.
TEST_P(HookLockTest, AHookDeliversToReceivesWithAnyTag) {
  const auto all = open_all(1);
  std::uint64_t value = 3, into = 0;
  send(*all[0], 1, 1, bytes_of(value));
  expect_value(*all[1], 0, 1, value);
  Pending& received = receive(*all[1], 0, kAnyTag, bytes_of(into));
  send(*all[0], 1, 1, bytes_of(value));
  MessageLane* const lane = engine(1).find_lane(0);
  ASSERT_NE(lane, nullptr);
  lane->vci().exclusively([&] {
    std::thread([&] {
      for (int i = 0; i < 20; ++i) (void)engine(1).try_progress(kRecords, kPart);
    }).join();
  });
  for (int i = 0; i < 100 && !is_done(received); ++i) {
    job_.wire.settle();
    (void)engine(1).try_progress(kRecords, kPart);
  }
  EXPECT_TRUE(is_done(received));
  EXPECT_TRUE(finish(&received).status.ok());
  EXPECT_EQ(into, 3u);
}

TEST_P(HookTest, AWaitReadsTheRest) {
  for (int turn = 0; turn < 3; ++turn) expect_bounded_turn();
  EXPECT_FALSE(is_done(*received_[0]));
  EXPECT_GT(count(), 0u);
  for (int i = 0; i < 10; ++i) (void)poll(*received_[0]);
  EXPECT_TRUE(is_done(*received_[0]));
  EXPECT_TRUE(is_done(*received_[1]));
  expect_all();
}

}  // namespace
}  // namespace larklane::msg
