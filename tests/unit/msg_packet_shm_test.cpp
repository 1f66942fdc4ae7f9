// Packets over shared memory, both lanes in one process: small records are complete at once, and
// need no packet.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "msg/packet/packet_link.hpp"
#include "net/shm/network_fabric.hpp"
#include "net/shm/network_layout.hpp"
#include "unit/msg_packet_pair.hpp"
#include "unit/net_pair.hpp"

namespace larklane::msg {
namespace {

constexpr PacketLane::Options kLane{4, 4};
constexpr std::uint32_t kCells = 16;
/// The bytes of a cell behind its header.
constexpr std::uint32_t kSmallBytesMax = 40;

std::unique_ptr<net::Fabric> open_shm() {
  std::string reason;
  auto fabric = shm::open_network({}, &reason);
  EXPECT_TRUE(fabric) << reason;
  return std::move(fabric).value();
}

struct ShmPair {
  explicit ShmPair(std::uint32_t cells = kCells, PacketLane::Options lane = kLane,
                   std::uint32_t first_cells = 0)
      : fabrics{open_shm(), open_shm()},
        sides{{*fabrics[0], lane}, {*fabrics[1], lane}},
        a(sides[0], cells, first_cells),
        b(sides[1], cells, first_cells) {
    a.connect(b);
    b.connect(a);
  }
  ~ShmPair() {
    settle();
    EXPECT_TRUE(a.link->is_quiet() && b.link->is_quiet());
    a.link.reset();
    b.link.reset();
  }
  void settle() {
    for (int i = 0; i < 4; ++i)
      for (PacketSide& side : sides) side.vci->drain();
  }
  void expect_heard(std::uint32_t count) const {
    ASSERT_EQ(b.received.size(), count);
    for (std::uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(b.received[i].header[0], i);
      expect_intact(b.received[i].header, b.received[i].payload);
    }
  }
  std::unique_ptr<net::Fabric> fabrics[2];
  PacketSide sides[2];
  PacketEnd a, b;
};

TEST(ShmPackets, SmallRecordsNeedNoPacket) {
  ShmPair pair;
  PacketLane& lane = *pair.sides[0].lane;
  std::vector<Packet*> packets;
  while (Packet* const packet = lane.take_packet()) packets.push_back(packet);
  EXPECT_EQ(packets.size(), kLane.packets);
  EXPECT_EQ(pair.a.post(0, kSmallBytesMax), net::Post::done);
  EXPECT_EQ(pair.a.post(1, 0), net::Post::done);
  EXPECT_EQ(pair.a.post(2, kSmallBytesMax + 1), net::Post::retry);
  EXPECT_TRUE(pair.a.link->is_quiet());
  for (Packet* const packet : packets) lane.give_back(*packet);
  EXPECT_EQ(pair.a.post(2, kSmallBytesMax + 1), net::Post::done);
  pair.settle();
  pair.expect_heard(3);
  const vci::VciCounts counts = pair.sides[0].vci->counts();
  EXPECT_EQ(counts.posts, 3u);
  EXPECT_EQ(counts.operations_of(vci::Work::Kind::small_immediate), 3u);
}

TEST(ShmPackets, AFullRingTakesNoneAndLosesNone) {
  ShmPair pair;
  std::uint32_t posted = 0;
  for (int round = 0; round < 200; ++round) {
    while (pair.a.post(posted, posted % (kSmallBytesMax + 10)) == net::Post::done) ++posted;
    pair.settle();
  }
  pair.expect_heard(posted);
  EXPECT_GE(posted, 200 * kCells / 2);
}

// A thread that makes a turn now and then does not wait for several turns, neither before the ring
// is watched nor later.
// Until the ring grows, its memory behind the cells in use is not touched, so it takes no pages.
void fill_until_it_grows(PacketLane::Options lane) {
  constexpr RingShape kShape{64, 4, 8};
  ShmPair pair(kShape.cells, lane, kShape.first_cells);
  const std::vector<std::byte> offer = pair.b.link->offer();
  const net::RemoteMemory ring = parse_packet_offer(offer)->offer.ring;
  const auto* const bytes = reinterpret_cast<const std::byte*>(ring.address);
  const auto is_unused = [&] {
    return std::all_of(bytes + ring_offset_of(kShape.covered_at_first()),
                       bytes + std::size_t{kShape.lines()} * kCellBytes,
                       [](std::byte one) { return one == std::byte{}; });
  };
  std::uint32_t posted = 0;
  for (; posted < 500; ++posted) {
    ASSERT_EQ(pair.a.post(posted, posted % 3 * 70), net::Post::done) << posted;
    (void)pair.sides[1].vci->progress();
  }
  EXPECT_FALSE(pair.a.link->has_grown());
  EXPECT_TRUE(is_unused());
  std::uint32_t fulls = 0;
  for (; !pair.a.link->has_grown() && fulls < 100; ++fulls) {
    while (pair.a.post(posted, 8) == net::Post::done) ++posted;
    (void)pair.sides[1].vci->progress();
    (void)pair.sides[0].vci->progress();
  }
  EXPECT_EQ(fulls, PacketLink::kFullsBeforeGrowth);
  const std::uint32_t before = posted;
  for (int lap = 0; lap < 10; ++lap) {
    while (pair.a.post(posted, 8) == net::Post::done) ++posted;
    pair.settle();
  }
  EXPECT_GT(posted - before, 9 * (kShape.cells - kShape.untold_max()));
  EXPECT_FALSE(is_unused());
  pair.expect_heard(posted);
  EXPECT_FALSE(pair.b.link->has_grown());
}

TEST(ShmPackets, AFullRingGrowsIntoMemoryThatWasNotUsed) {
  for (const bool pushes : {false, true}) fill_until_it_grows({4, 4, pushes});
}

TEST(ShmPackets, EachTurnFindsTheRecordThatIsThere) {
  ShmPair pair;
  for (std::uint32_t i = 0; i < 4 * PacketLink::kHeardBeforeWatch; ++i) {
    ASSERT_EQ(pair.a.post(i, 8), net::Post::done);
    (void)pair.sides[1].vci->progress();
    pair.expect_heard(i + 1);
  }
}

// A peer has left no room for immediates: a record that has a position goes out later, in its turn.
TEST(ShmPackets, ARecordThatFindsNoRoomGoesOutLater) {
  ShmPair pair;
  const auto greedy = open_shm();
  net::Side raw;
  raw.open(*greedy);
  const std::vector<std::byte> offer = pair.b.link->offer();
  ASSERT_TRUE(raw.link->connect(parse_packet_offer(offer)->link).ok());
  net::Sent sent;
  std::uint32_t strays = 0;
  while (raw.link->write_small_immediate({}, {}, packet_immediate(0xffff, 0), sent).value() ==
         net::Post::done)
    ++strays;
  EXPECT_EQ(strays, shm::QueueArea::kSlots);
  EXPECT_EQ(pair.a.post(0, 8), net::Post::done);
  EXPECT_EQ(pair.a.post(1, 8), net::Post::done);
  EXPECT_EQ(pair.a.post(2, 100), net::Post::done);
  EXPECT_FALSE(pair.a.link->is_quiet());
  EXPECT_GE(pair.sides[0].vci->counts().retries, 1u);
  pair.settle();
  EXPECT_EQ(pair.a.post(3, 8), net::Post::done);
  pair.settle();
  pair.expect_heard(4);
  EXPECT_EQ(pair.sides[1].lane->counts().strays, strays);
}

std::uint64_t immediates_of(const ShmPair& pair) {
  const vci::VciCounts counts = pair.sides[0].vci->counts();
  return counts.operations_of(vci::Work::Kind::small_immediate) +
         counts.operations_of(vci::Work::Kind::write_immediate);
}

/// Records of one cell, each heard at once, until the ring is watched.
void warm(ShmPair& pair) {
  for (std::uint32_t number = 0; number < PacketLink::kHeardBeforeWatch; ++number) {
    EXPECT_EQ(pair.a.post(number, 8), net::Post::done);
    pair.settle();
  }
}

// The listener gets it at once, in a ring that has room for a while.
TEST(ShmPackets, AWatchedRingNeedsNoImmediate) {
  ShmPair pair(16 * kCells);
  warm(pair);
  std::uint32_t number = PacketLink::kHeardBeforeWatch;
  EXPECT_EQ(immediates_of(pair), number);
  for (; number < 500; ++number) {
    ASSERT_EQ(pair.a.post(number, number % 230), net::Post::done);
    if (number % 2 == 0) pair.settle();
  }
  pair.settle();
  pair.expect_heard(number);
  EXPECT_EQ(immediates_of(pair), PacketLink::kHeardBeforeWatch);
}

// The payload looks like the record that the cell will have a lap later, and that is not written
// yet.
TEST(ShmPackets, PayloadIsNeverTakenForARecord) {
  constexpr std::uint32_t kLongCells = 4;
  ShmPair pair;
  warm(pair);
  const PacketOffer offer = parse_packet_offer(pair.b.link->offer())->offer;
  std::uint64_t position = offer.shape.first_position() + PacketLink::kHeardBeforeWatch;
  std::size_t posted = 0, heard = 0;
  pair.b.react = [&](const PacketHeader&, std::span<const std::byte>) { ++heard; };
  const auto post = [&](std::span<const std::byte> payload) {
    ASSERT_EQ(*pair.a.link->post(header_of(0, 0), payload), net::Post::done);
    position += record_cells_of(static_cast<std::uint32_t>(payload.size()));
    pair.settle();
    ASSERT_EQ(heard, ++posted) << position;
  };
  for (std::uint32_t round = 0; round < 20; ++round)
    for (std::uint32_t cell = 1; cell < kLongCells; ++cell) {
      const std::vector<std::uint64_t> words(29,
                                             stamp_of(position + kCells + cell, offer.generation));
      ASSERT_EQ(record_cells_of(29 * 8), kLongCells);
      post(std::as_bytes(std::span(words)));
      for (std::uint32_t more = kLongCells; more < kCells + cell; ++more) post({});
    }
  EXPECT_TRUE(pair.b.failures.empty());
}

// Nor is payload behind the cells in use, where records begin once the ring has grown.
TEST(ShmPackets, PayloadOfBeforeTheGrowthIsNeverTakenForARecord) {
  constexpr RingShape kShape{64, 4, 4};
  ShmPair pair(kShape.cells, kLane, kShape.first_cells);
  const std::vector<std::byte> bytes = pair.b.link->offer();
  const PacketOffer offer = parse_packet_offer(bytes)->offer;
  std::size_t posted = 0, heard = 0;
  pair.b.react = [&](const PacketHeader&, std::span<const std::byte>) { ++heard; };
  const auto post = [&](std::span<const std::byte> payload) {
    if (*pair.a.link->post(header_of(0, 0), payload) == net::Post::retry) return;
    pair.settle();
    ASSERT_EQ(heard, ++posted);
  };
  post({});
  post({});
  // From cell 2 to cell 4, which is in use later.
  const std::uint64_t first = offer.shape.first_position(), mark = first + 5;
  const std::vector<std::uint64_t> words(21,
                                         stamp_of(kShape.grown_limit(mark) + 4, offer.generation));
  post(std::as_bytes(std::span(words)));
  ASSERT_EQ(posted, 3u);
  const std::vector<std::byte> longest(kShape.payload_bytes_max());
  post(longest);
  EXPECT_EQ(posted, 3u);
  EXPECT_TRUE(pair.a.link->has_grown());
  pair.settle();
  for (std::uint32_t i = 0; i < 3 * kShape.cells; ++i) post({});
  EXPECT_EQ(posted, 3u + 3 * kShape.cells);
  EXPECT_TRUE(pair.b.failures.empty());
}

// Links beyond those that a lane watches, and those that follow when some of them are closed.
TEST(ShmPackets, TheFirstOnesAreWatched) {
  ShmPair pair;
  warm(pair);
  std::vector<std::unique_ptr<PacketEnd>> ends;
  for (int round = 0; round < 3; ++round) {
    for (int more = 0; more < 12; ++more) {
      auto a = std::make_unique<PacketEnd>(pair.sides[0], kCells);
      auto b = std::make_unique<PacketEnd>(pair.sides[1], kCells);
      a->connect(*b);
      b->connect(*a);
      for (std::uint32_t number = 0; number < 60; ++number) {
        ASSERT_EQ(a->post(number, 8), net::Post::done);
        pair.settle();
      }
      EXPECT_EQ(b->received.size(), 60u);
      ends.push_back(std::move(a));
      ends.push_back(std::move(b));
    }
    ends.clear();
  }
  ASSERT_EQ(pair.a.post(PacketLink::kHeardBeforeWatch, 8), net::Post::done);
  pair.settle();
  pair.expect_heard(PacketLink::kHeardBeforeWatch + 1);
}

// --- pushes -------------------------------------------------------------------------------------

constexpr PacketLane::Options kPushing{4, 4, true};

bool look_whole(PacketSide& side) {
  bool is_whole = false;
  side.vci->exclusively([&] { is_whole = side.lane->look_at_all_locked(); });
  return is_whole;
}

TEST(ShmPackets, APushedRecordCanBeReadWhenItsPostReturns) {
  ShmPair pair(kCells, kPushing);
  ASSERT_TRUE(pair.a.link->is_pushed());
  std::uint32_t number = 0;
  const auto post = [&] { EXPECT_EQ(pair.a.post(number++, 8), net::Post::done); };
  const auto post_and_look = [&] {
    // A thread that holds the lane delays no post: neither the other thread's nor those behind it.
    std::thread(post).join();
    EXPECT_TRUE(look_whole(pair.sides[1]));
    pair.expect_heard(number);
  };
  for (std::uint32_t i = 0; i < 2 * PacketLink::kHeardBeforeWatch; ++i) {
    pair.sides[0].vci->exclusively(post_and_look);
    post();
    EXPECT_TRUE(look_whole(pair.sides[1]));
    pair.expect_heard(number);
    pair.settle();
  }
}

TEST(ShmPackets, APushWithoutRoomTakesNoPosition) {
  for (const std::uint32_t bytes : {8u, 150u}) {
    ShmPair pair(kCells, kPushing);
    std::uint32_t posted = 0;
    for (int round = 0; round < 100; ++round) {
      while (pair.a.post(posted, bytes) == net::Post::done) ++posted;
      EXPECT_EQ(pair.a.post(posted, bytes), net::Post::retry);
      EXPECT_TRUE(look_whole(pair.sides[1]));
      pair.expect_heard(posted);
      pair.settle();
      EXPECT_TRUE(pair.a.link->is_quiet());
    }
    EXPECT_GE(posted, 100u);
  }
}

TEST(ShmPackets, APushedPacketIsFreeAtOnce) {
  ShmPair pair(64, kPushing);
  for (std::uint32_t number = 0; number < 40; ++number) {
    Packet* const packet = pair.sides[0].lane->take_packet();
    ASSERT_NE(packet, nullptr);
    const PacketHeader header = header_of(number, 200);
    fill_payload(packet->payload().first(200), header);
    ASSERT_EQ(*pair.a.link->post(*packet, header, 200), net::Post::done);
    pair.settle();
  }
  pair.expect_heard(40);
}

TEST(ShmPackets, ALookTakesTheRecordsOfAllLinks) {
  ShmPair pair(kCells, kPushing);
  std::vector<std::unique_ptr<PacketEnd>> ends;
  for (int more = 0; more < 12; ++more) {
    ends.push_back(std::make_unique<PacketEnd>(pair.sides[0], kCells));
    ends.push_back(std::make_unique<PacketEnd>(pair.sides[1], kCells));
    ends[ends.size() - 2]->connect(*ends.back());
    ends.back()->connect(*ends[ends.size() - 2]);
  }
  for (std::uint32_t number = 0; number < 40; ++number) {
    for (std::size_t i = 0; i < ends.size(); i += 2)
      ASSERT_EQ(ends[i]->post(number, 8), net::Post::done);
    EXPECT_TRUE(look_whole(pair.sides[1]));
    for (std::size_t i = 0; i < ends.size(); i += 2)
      ASSERT_EQ(ends[i + 1]->received.size(), number + 1);
    if (number % 4 == 0) pair.settle();
  }
  pair.settle();
  ends.clear();
}

TEST(ShmPackets, ALookAtAHeldRecordIsNotWhole) {
  ShmPair pair(kCells, kPushing);
  pair.b.holds = true;
  ASSERT_EQ(pair.a.post(0, 8), net::Post::done);
  EXPECT_FALSE(look_whole(pair.sides[1]));
  EXPECT_FALSE(look_whole(pair.sides[1]));
  pair.b.holds = false;
  EXPECT_TRUE(look_whole(pair.sides[1]));
  pair.expect_heard(1);
}

// A record without a place at the peer any more: the post is done, the listener gets the error.
TEST(ShmPackets, ARefusedRecordFailsTheLink) {
  ShmPair pair;
  pair.b.link.reset();
  EXPECT_EQ(pair.a.post(0, 8), net::Post::done);
  ASSERT_EQ(pair.a.failures.size(), 1u);
  EXPECT_EQ(pair.a.failures[0].code(), Errc::kTransfer);
  EXPECT_TRUE(pair.a.link->is_quiet());
  EXPECT_FALSE(pair.a.link->post({}, {}));
  pair.b.link = std::move(PacketLink::open(*pair.sides[1].lane, pair.b, kCells).value());
}

}  // namespace
}  // namespace larklane::msg
