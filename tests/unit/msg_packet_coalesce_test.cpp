// Coalesced records: the poster has announced that more follow. The tests check the time and order
// in which they go out, and the cost.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "msg/packet/packet_link.hpp"
#include "unit/msg_packet_pair.hpp"

namespace larklane::msg {
namespace {

using Kind = vci::Work::Kind;

/// Two processes, with rings of 64 cells and packets of 16.
struct Coalescing : testing::Test {
  net::Post post(std::uint32_t number, std::uint32_t bytes, bool more_follow) {
    const PacketHeader header = header_of(number, bytes);
    auto answer = pair.a.link->post(header, payload_of(header), more_follow);
    EXPECT_TRUE(answer);
    return answer ? *answer : net::Post::retry;
  }
  std::uint64_t writes() const {
    const vci::VciCounts counts = pair.sides[0].vci->counts();
    return counts.operations_of(Kind::write_immediate) +
           counts.operations_of(Kind::small_immediate);
  }
  std::uint64_t coalesced() const { return pair.sides[0].lane->counts().coalesced; }
  void expect_received(std::uint32_t count) {
    ASSERT_EQ(pair.b.received.size(), count);
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(pair.b.received[i].header[0], i);
      expect_intact(pair.b.received[i].header, pair.b.received[i].payload);
    }
  }
  /// The records that the receiver finds without further calls of the sender.
  void receive() {
    for (int i = 0; i < 20; ++i) {
      pair.wire.settle();
      (void)pair.sides[1].vci->progress();
    }
  }

  PacketPair pair{{}, {8, 16}, 64, 64};
};

TEST_F(Coalescing, SeveralRecordsAreOneWrite) {
  for (std::uint32_t i = 0; i < 9; ++i) ASSERT_EQ(post(i, 8 * i, true), net::Post::done);
  EXPECT_EQ(writes(), 0u);
  ASSERT_EQ(post(9, 8, false), net::Post::done);
  EXPECT_EQ(writes(), 1u);
  EXPECT_EQ(coalesced(), 9u);
  receive();
  expect_received(10);
}

TEST_F(Coalescing, ARecordWithoutTheMoreFlagGoesAtOnce) {
  ASSERT_EQ(post(0, 8, false), net::Post::done);
  EXPECT_EQ(writes(), 1u);
  EXPECT_EQ(coalesced(), 0u);
}

TEST_F(Coalescing, ATurnOfTheLaneSendsWaitingRecords) {
  ASSERT_EQ(post(0, 8, true), net::Post::done);
  receive();
  expect_received(0);
  EXPECT_FALSE(pair.a.link->is_quiet());
  (void)pair.sides[0].vci->progress();
  receive();
  expect_received(1);
}

// A second one like it has no room.
TEST_F(Coalescing, NoneWaitsThatNoneCanJoin) {
  ASSERT_EQ(post(0, 8 * 64, true), net::Post::done);
  EXPECT_EQ(writes(), 1u);
  for (std::uint32_t i = 1; i <= 16; ++i) ASSERT_EQ(post(i, 8, true), net::Post::done);
  EXPECT_EQ(writes(), 2u);
  receive();
  expect_received(17);
}

// The receiver never sees the earlier contents of the packet.
TEST_F(Coalescing, BetweenRecordsThereIsNothing) {
  std::vector<Packet*> all;
  while (Packet* const packet = pair.sides[0].lane->take_packet()) {
    std::ranges::fill(packet->payload(), std::byte{0x5a});
    all.push_back(packet);
  }
  for (Packet* const packet : all) pair.sides[0].lane->give_back(*packet);
  std::size_t heard = 0;
  pair.b.react = [&](const PacketHeader&, std::span<const std::byte> payload) {
    const std::byte* const cell = payload.data() - sizeof(RecordHead);
    if (++heard == 3) return;
    EXPECT_TRUE(std::all_of(cell + sizeof(RecordHead) + payload.size(), cell + kCellBytes,
                            [](std::byte byte) { return byte == std::byte{0}; }));
  };
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_EQ(post(i, 5, i < 2), net::Post::done);
  receive();
  EXPECT_EQ(heard, 3u);
}

// Where each write is a system call, more go together than a record may be long.
TEST(CoalescingLong, PacketsOfThirtyTwoKibibytes) {
  loop::Fabric::Options network;
  network.limits.is_post_system_call = true;
  PacketPair pair(network, {8, 16}, 1024, 1024);
  for (std::uint32_t i = 0; i < 512; ++i) {
    const PacketHeader header = header_of(i, 8);
    ASSERT_EQ(pair.a.link->post(header, payload_of(header), true).value(), net::Post::done);
  }
  const vci::VciCounts counts = pair.sides[0].vci->counts();
  EXPECT_EQ(counts.operations_of(Kind::write_immediate), 1u);
  pair.settle();
  ASSERT_EQ(pair.b.received.size(), 512u);
  for (std::uint32_t i = 0; i < 512; ++i) ASSERT_EQ(pair.b.received[i].header[0], i);
}

TEST_F(Coalescing, ARecordThatDoesNotFitGoesWithTheNext) {
  // 5 cells each: three to a packet of 16.
  for (std::uint32_t i = 0; i < 7; ++i) ASSERT_EQ(post(i, 5 * 64 - 24, true), net::Post::done);
  EXPECT_EQ(writes(), 2u);
  (void)pair.sides[0].vci->progress();
  EXPECT_EQ(writes(), 3u);
  EXPECT_EQ(coalesced(), 4u);
  receive();
  expect_received(7);
}

// The record behind the last cell is the first of the ring's memory.
TEST_F(Coalescing, NoWriteGoesRoundTheEndOfTheRing) {
  std::uint32_t posted = 0;
  for (int lap = 0; lap < 5; ++lap) {
    for (int i = 0; i < 13; ++i)
      ASSERT_EQ(post(posted++, 3 * 64 - 24, i % 5 != 4), net::Post::done) << posted;
    pair.settle();
  }
  expect_received(posted);
}

TEST_F(Coalescing, ARecordAssembledInAPacketComesBehind) {
  ASSERT_EQ(post(0, 8, true), net::Post::done);
  Packet* const packet = pair.sides[0].lane->take_packet();
  ASSERT_NE(packet, nullptr);
  const PacketHeader header = header_of(1, 100);
  fill_payload(packet->payload().first(100), header);
  ASSERT_EQ(pair.a.link->post(*packet, header, 100).value(), net::Post::done);
  receive();
  expect_received(2);
}

TEST_F(Coalescing, APostToAnotherPeerSendsWaitingRecords) {
  PacketEnd c(pair.sides[0], 64), d(pair.sides[1], 64);
  c.connect(d);
  d.connect(c);
  ASSERT_EQ(post(0, 8, true), net::Post::done);
  ASSERT_EQ(c.link->post(header_of(0, 8), payload_of(header_of(0, 8)), true).value(),
            net::Post::done);
  EXPECT_EQ(writes(), 1u);
  receive();
  expect_received(1);
  EXPECT_TRUE(d.received.empty());
  ASSERT_EQ(post(1, 8, false), net::Post::done);
  receive();
  expect_received(2);
  EXPECT_EQ(d.received.size(), 1u);
  pair.settle();
}

TEST_F(Coalescing, AnotherThreadsPostSendsWaitingRecords) {
  ASSERT_EQ(post(0, 8, true), net::Post::done);
  std::thread([&] { ASSERT_EQ(post(1, 8, false), net::Post::done); }).join();
  receive();
  expect_received(2);
}

TEST_F(Coalescing, WithoutRoomWaitingRecordsGoOutAndThePostReturnsRetry) {
  std::uint32_t posted = 0;
  while (post(posted, 8, true) == net::Post::done) ASSERT_LE(++posted, 64u);
  EXPECT_EQ(posted, 64u);
  EXPECT_EQ(writes(), 4u);
  receive();
  expect_received(64);
}

// In the middle of a packet, and of the ring.
TEST_F(Coalescing, NoneJoinsWithoutRoom) {
  std::uint32_t posted = 0;
  for (; posted < 40; ++posted) ASSERT_EQ(post(posted, 8, posted % 8 != 7), net::Post::done);
  pair.settle();
  while (post(posted, 8, true) == net::Post::done) ASSERT_LE(++posted, 40u + 64);
  pair.settle();
  expect_received(posted);
}

// The chunks of a cut write arrive in any order, so a coalesced write stays below the cut.
TEST(CoalescingLong, WritesAreNotCut) {
  loop::Fabric::Options network;
  network.limits.is_post_system_call = true;
  network.limits.write_bytes_max = 1024;
  PacketPair pair(network, {8, 16}, 1024, 1024);
  for (std::uint32_t i = 0; i < 100; ++i) {
    const PacketHeader header = header_of(i, 8);
    ASSERT_EQ(pair.a.link->post(header, payload_of(header), true).value(), net::Post::done);
  }
  pair.settle();
  EXPECT_EQ(pair.sides[0].vci->counts().chunks, 0u);
  EXPECT_EQ(pair.b.received.size(), 100u);
}

TEST_F(Coalescing, WithoutAPacketThePostReturnsRetry) {
  std::vector<Packet*> all;
  while (Packet* const packet = pair.sides[0].lane->take_packet()) all.push_back(packet);
  EXPECT_EQ(post(0, 8, true), net::Post::retry);
  for (Packet* const packet : all) pair.sides[0].lane->give_back(*packet);
  EXPECT_EQ(post(0, 8, true), net::Post::done);
  pair.settle();
  expect_received(1);
}

// The second of three is not wanted yet: the records behind it stay, too, and in order.
TEST_F(Coalescing, AHeldRecordHoldsLaterOnes) {
  bool is_wanted = false;
  struct Choosy final : PacketListener {
    explicit Choosy(bool& wanted) : is_wanted(wanted) {}
    Result<bool> on_packet(PacketLink&, const PacketHeader& header,
                           std::span<const std::byte>) override {
      if (header[0] == 1 && !is_wanted) return false;
      heard.push_back(header[0]);
      return true;
    }
    void on_failure(PacketLink&, Status) override { ADD_FAILURE(); }
    bool& is_wanted;
    std::vector<std::uint32_t> heard;
  } choosy(is_wanted);
  PacketEnd from(pair.sides[0], 64);
  auto to = PacketLink::open(*pair.sides[1].lane, choosy, 64).value();
  ASSERT_TRUE(from.link->connect(to->offer()).ok());
  ASSERT_TRUE(to->connect(from.link->offer()).ok());
  for (std::uint32_t i = 0; i < 4; ++i)
    ASSERT_TRUE(from.link->post(header_of(i, 8), payload_of(header_of(i, 8)), i < 2));
  receive();
  EXPECT_EQ(choosy.heard, std::vector<std::uint32_t>{0});
  is_wanted = true;
  to->resume();
  EXPECT_EQ(choosy.heard, (std::vector<std::uint32_t>{0, 1, 2, 3}));
  pair.settle();
}

TEST_F(Coalescing, WaitingRecordsFailWithTheLink) {
  ASSERT_EQ(post(0, 8, true), net::Post::done);
  ASSERT_EQ(writes(), 0u);
  pair.wire.kill_endpoint(1);
  pair.a.link->end(Errc::kPeerDown);
  EXPECT_EQ(pair.a.failures, std::vector<Status>{Errc::kPeerDown});
  pair.settle();
  EXPECT_TRUE(pair.a.link->is_quiet());
  EXPECT_FALSE(pair.a.link->post({}, {}, true));
}

}  // namespace
}  // namespace larklane::msg
