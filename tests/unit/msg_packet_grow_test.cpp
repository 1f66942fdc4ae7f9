// Rings that use some of their cells until their sender has found them full.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "msg/packet/packet_link.hpp"
#include "unit/msg_packet_pair.hpp"

namespace larklane::msg {
namespace {

constexpr PacketLane::Options kGrowingLane{64, 4};
constexpr RingShape kGrowing{64, 4, 8};
constexpr std::uint32_t kRoom = 7;  // and the mark

struct GrowingPair : PacketPair {
  explicit GrowingPair(loop::Fabric::Options network = {}, std::uint32_t first = 8)
      : PacketPair(network, kGrowingLane, 64, 64, first) {}
  /// @return records that find room, without any progress
  std::uint32_t post_all(std::uint32_t bytes) {
    std::uint32_t count = 0;
    while (a.post(posted, bytes) == net::Post::done) ++posted, ++count;
    return count;
  }
  void expect_all() const {
    ASSERT_EQ(b.received.size(), posted);
    for (std::uint32_t i = 0; i < posted; ++i) {
      ASSERT_EQ(b.received[i].header[0], i);
      expect_intact(b.received[i].header, b.received[i].payload);
    }
    EXPECT_TRUE(b.failures.empty());
  }
  std::uint32_t posted = 0;
};

loop::Fabric::Options network_of(bool is_first_word_last) {
  loop::Fabric::Options network;
  if (is_first_word_last) network.limits.first_word_last_bytes_max = UINT64_MAX;
  return network;
}

TEST(PacketGrowth, ShapesThatGrow) {
  EXPECT_TRUE(kGrowing.is_legal());
  EXPECT_EQ(kGrowing.covered_at_first(), 11u);
  EXPECT_EQ(kGrowing.assured_at_first(), 4u);
  for (const std::uint32_t first : {1u, 2u, 6u, 32u, 64u, 128u})
    EXPECT_FALSE((RingShape{64, 4, first}.is_legal())) << first;
  EXPECT_TRUE((RingShape{16, 4, 4}.is_legal()));
  EXPECT_FALSE((RingShape{8, 4, 4}.is_legal()));
}

// The first positions of a grown ring lead to cells that no record has covered, and no freed
// position before the mark gives more of them.
TEST(PacketGrowth, PositionsBehindTheMark) {
  for (const RingShape& shape : {kGrowing, RingShape{16, 4, 4}, RingShape{1024, 128, 128}})
    for (std::uint64_t mark = shape.first_position(); mark < shape.first_position() + 3000;
         ++mark) {
      const std::uint64_t grown = shape.grown_position(mark);
      ASSERT_EQ(shape.index_of(grown), shape.covered_at_first());
      ASSERT_EQ(shape.index_of(shape.grown_limit(mark)), 0u);
      ASSERT_LT(grown, shape.grown_limit(mark));
      ASSERT_LE(shape.grown_limit(mark) - grown, shape.cells);
      ASSERT_LE(mark + 1 + shape.cells, shape.grown_limit(mark));
    }
}

TEST(PacketGrowth, ARingThatIsFoundFullGrows) {
  for (const bool is_first_word_last : {false, true}) {
    GrowingPair pair(network_of(is_first_word_last));
    for (std::uint32_t i = 1; i <= PacketLink::kFullsBeforeGrowth; ++i) {
      EXPECT_FALSE(pair.a.link->has_grown());
      // Some freed cells are not reported.
      const std::uint32_t count = pair.post_all(8);
      EXPECT_TRUE(i == 1 ? count == kRoom : count >= kGrowing.assured_at_first() && count <= kRoom)
          << count << " in round " << i;
      // More refusals of the same position count once.
      for (int again = 0; again < 20; ++again) EXPECT_EQ(pair.post_all(8), 0u);
      pair.settle();
    }
    // It may be that at the last refusal some writes were not over. Then the next one suffices.
    for (int again = 0; again < 20 && !pair.a.link->has_grown(); ++again) {
      (void)pair.post_all(8);
      pair.wire.settle();
      (void)pair.sides[0].vci->progress();
    }
    EXPECT_TRUE(pair.a.link->has_grown());
    EXPECT_FALSE(pair.b.link->has_grown());
    pair.settle();
    pair.expect_all();
    (void)pair.post_all(8);  // up to the end of the cells that were never used, or further
    pair.settle();
    EXPECT_GT(pair.post_all(8), 64u - kGrowing.untold_max() - 1);
    for (int lap = 0; lap < 20; ++lap) {
      pair.settle();
      EXPECT_GT(pair.post_all(100 * (static_cast<std::uint32_t>(lap) % 3)), 0u);
    }
    pair.settle();
    pair.expect_all();
    EXPECT_EQ(pair.sides[0].lane->counts().strays + pair.sides[1].lane->counts().strays, 0u);
  }
}

TEST(PacketGrowth, ARingThatIsNeverFullDoesNotGrow) {
  GrowingPair pair(network_of(true));
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(pair.a.post(pair.posted++, 100), net::Post::done);
    pair.step();
  }
  pair.settle();
  pair.expect_all();
  EXPECT_FALSE(pair.a.link->has_grown());
}

// Its room may never be reported: freed cells that are too few for a word may be too many for it.
TEST(PacketGrowth, ALongRecordMakesTheRingGrowAtOnce) {
  for (const bool is_first_word_last : {false, true})
    for (std::uint32_t before = 0; before < 9; ++before) {
      GrowingPair pair(network_of(is_first_word_last), 4);
      for (; pair.posted < before; ++pair.posted) {
        ASSERT_EQ(pair.a.post(pair.posted, 8), net::Post::done);
        pair.settle();
      }
      for (int tries = 0; pair.posted == before && tries < 10; ++tries) {
        if (pair.a.post(pair.posted, 232) == net::Post::done) ++pair.posted;
        pair.settle();
      }
      EXPECT_EQ(pair.posted, before + 1);
      EXPECT_TRUE(pair.a.link->has_grown());
      pair.settle();
      pair.expect_all();
    }
}

// Records of before the growth come after the mark, and after records behind it.
TEST(PacketGrowth, BothWaysWithEachOffset) {
  for (std::uint32_t offset = 0; offset < 70; ++offset) {
    loop::Fabric::Options network = network_of(offset % 2 == 0);
    network.seed = offset;
    network.delayed_percent = 70;
    GrowingPair pair(network);
    std::uint32_t back = 0;
    for (std::uint32_t i = 0; i < offset; ++i) {
      ASSERT_EQ(pair.a.post(pair.posted++, 8), net::Post::done);
      pair.step();
    }
    for (std::uint32_t tries = 0; tries < 4000 && (pair.posted < 400 || back < 200); ++tries) {
      if (pair.a.post(pair.posted, pair.posted % 7 * 30) == net::Post::done) ++pair.posted;
      if (tries % 2 == 0 && pair.b.post(back, 40) == net::Post::done) ++back;
      pair.wire.turn(1);
      (void)pair.sides[0].vci->progress();
      if (tries % 16 == 0) pair.step();
    }
    pair.settle();
    pair.expect_all();
    EXPECT_GE(pair.posted, 400u);
    EXPECT_EQ(pair.a.received.size(), back);
    EXPECT_TRUE(pair.a.link->has_grown()) << offset;
  }
}

TEST(PacketGrowth, OnlyWithNarrowImmediatesAndTwoPackets) {
  loop::Fabric::Options network;
  network.limits.has_wide_immediates = true;
  loop::Fabric wire(network);
  PacketSide side(wire, kGrowingLane);
  struct : PacketListener {
    Result<bool> on_packet(PacketLink&, const PacketHeader&, std::span<const std::byte>) override {
      return true;
    }
    void on_failure(PacketLink&, Status) override {}
  } listener;
  EXPECT_EQ(PacketLink::open(*side.lane, listener, 64, 8).error(), Status(Errc::kInvalidArgument));
  EXPECT_TRUE(PacketLink::open(*side.lane, listener, 64));
  loop::Fabric narrow({});
  PacketSide poor(narrow, {1, 4});
  EXPECT_EQ(PacketLink::open(*poor.lane, listener, 64, 8).error(), Status(Errc::kInvalidArgument));
}

}  // namespace
}  // namespace larklane::msg
