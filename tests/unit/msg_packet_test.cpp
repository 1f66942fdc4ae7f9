// Packets between two lanes: layout, credit, results of posts, failures, offers.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "msg/packet/packet_link.hpp"
#include "msg/packet/packet_wire.hpp"
#include "unit/msg_packet_pair.hpp"

namespace larklane::msg {
namespace {

constexpr PacketLane::Options kLane{8, 4};

void expect_received(const PacketEnd& end, std::uint32_t count) {
  ASSERT_EQ(end.received.size(), count);
  for (std::uint32_t i = 0; i < count; ++i) {
    ASSERT_EQ(end.received[i].header[0], i);
    expect_intact(end.received[i].header, end.received[i].payload);
  }
}

/// Posts records of `bytes` until one has to wait. @return how many went out
std::uint32_t fill(PacketPair& pair, PacketEnd& end, std::uint32_t bytes) {
  std::uint32_t posted = 0;
  for (int tries = 0; tries < 1000; ++tries) {
    const std::uint64_t no_room = end.side.lane->counts().no_room;
    if (end.post(posted, bytes) == net::Post::done)
      ++posted;
    else if (end.side.lane->counts().no_room != no_room)
      return posted;
    else
      (void)end.side.vci->progress(), pair.wire.turn(1);
  }
  ADD_FAILURE() << "it never has to wait";
  return posted;
}

TEST(Packets, EachSizeArrives) {
  PacketPair pair;
  const std::uint32_t most = pair.a.link->payload_bytes_max();
  EXPECT_EQ(most, 4 * 64 - 24u);
  for (std::uint32_t bytes = 0; bytes <= most; ++bytes) {
    pair.a.received.clear();
    pair.b.received.clear();
    ASSERT_EQ(pair.a.post(0, bytes), net::Post::done);
    ASSERT_EQ(pair.b.post(0, most - bytes), net::Post::done);
    pair.settle();
    expect_received(pair.a, 1);
    expect_received(pair.b, 1);
    ASSERT_EQ(pair.b.received[0].payload.size(), bytes);
  }
  EXPECT_EQ(pair.sides[0].lane->counts().delivered, most + 1);
  EXPECT_EQ(pair.sides[0].lane->counts().strays, 0u);
}

TEST(Packets, ATooLongRecordIsRefusedAndHarmsNothing) {
  PacketPair pair;
  const std::vector<std::byte> payload(pair.a.link->payload_bytes_max() + 1);
  EXPECT_EQ(pair.a.link->post({}, payload).error(), Status(Errc::kInvalidArgument));
  Packet* const packet = pair.sides[0].lane->take_packet();
  ASSERT_NE(packet, nullptr);
  EXPECT_EQ(pair.a.link->post(*packet, {}, 4 * 64 - 24 + 1).error(),
            Status(Errc::kInvalidArgument));
  pair.sides[0].lane->give_back(*packet);
  EXPECT_EQ(pair.a.post(0, 1), net::Post::done);
  pair.settle();
  expect_received(pair.b, 1);
}

TEST(Packets, APayloadIsAssembledInThePacket) {
  PacketPair pair;
  Packet* const packet = pair.sides[0].lane->take_packet();
  ASSERT_NE(packet, nullptr);
  ASSERT_EQ(packet->payload().size(), pair.a.link->payload_bytes_max());
  const PacketHeader header = header_of(0, 100);
  fill_payload(packet->payload().first(100), header);
  auto answer = pair.a.link->post(*packet, header, 100);
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, net::Post::done);
  pair.settle();
  expect_received(pair.b, 1);
}

// The shorter side's lane limits both.
TEST(Packets, TheLongestRecordIsTheShorterSides) {
  loop::Fabric wire({});
  const auto other = wire.for_process();
  PacketSide one(wire, {4, 2}), two(*other, {4, 8});
  PacketEnd a(one, 8), b(two, 8);
  a.connect(b);
  b.connect(a);
  EXPECT_EQ(a.link->payload_bytes_max(), 2 * 64 - 24u);
  EXPECT_EQ(b.link->payload_bytes_max(), 2 * 64 - 24u);
}

// The provider copies data that it takes as small; it fetches the rest from the packet.
TEST(Packets, SmallRecordsAreSmallWrites) {
  loop::Fabric::Options network;
  network.limits.small_bytes_max = 32;
  PacketPair pair(network);
  const auto operations = [&](vci::Work::Kind kind) {
    return pair.sides[0].vci->counts().operations_of(kind);
  };
  ASSERT_EQ(pair.a.post(0, 8), net::Post::done);
  EXPECT_EQ(operations(vci::Work::Kind::small_immediate), 1u);
  ASSERT_EQ(pair.a.post(1, 9), net::Post::done);
  EXPECT_EQ(operations(vci::Work::Kind::small_immediate), 1u);
  EXPECT_EQ(operations(vci::Work::Kind::write_immediate), 1u);
  pair.settle();
  expect_received(pair.b, 2);
}

// A head before it would make two of one write: its header is in the immediate, if it fits there.
TEST(Packets, ARecordOfOneSmallWriteHasNoHead) {
  loop::Fabric::Options network;
  network.limits.small_bytes_max = 100;
  network.limits.has_wide_immediates = true;
  PacketPair pair(network);
  const auto wide = [&] {
    return pair.sides[0].vci->counts().operations_of(vci::Work::Kind::small_wide);
  };
  for (const std::uint32_t bytes : {99u, 101u}) ASSERT_EQ(pair.a.post(0, bytes), net::Post::done);
  EXPECT_EQ(wide(), 0u);
  const std::vector<std::byte> payload = payload_of(header_of(0, 100));
  const auto post = [&](const PacketHeader& header) {
    ASSERT_EQ(pair.a.link->post(header, payload).value(), net::Post::done);
    pair.settle();
    ASSERT_FALSE(pair.b.received.empty());
    EXPECT_EQ(pair.b.received.back().header, header);
    EXPECT_EQ(pair.b.received.back().payload, payload);
  };
  post({0, 0, 0});
  post({1023, (1u << 20) - 1, 0});
  post({(1u << 28) - 1, 3, 0});
  EXPECT_EQ(wide(), 3u);
  post({1024, 4, 0});
  post({0, 1u << 20, 0});
  post({1u << 28, 0, 0});
  post({0, 0, 1});
  EXPECT_EQ(wide(), 3u);
  EXPECT_EQ(pair.b.received.size(), 9u);
}

TEST(Packets, HeadsAreSparedOnlyWhereBothSidesMeanTheSameLength) {
  loop::Fabric::Options network;
  network.limits.small_bytes_max = 100;
  network.limits.has_wide_immediates = true;
  PacketPair pair(network);
  std::uint64_t headless = 0;
  for (const std::uint16_t bytes : std::initializer_list<std::uint16_t>{0, 99, 100}) {
    PacketEnd c(pair.sides[0], 16), d(pair.sides[1], 16);
    const std::vector<std::byte> offer = d.link->offer();
    ParsedPacketOffer changed = parse_packet_offer(offer).value();
    changed.offer.headless_bytes = bytes;
    ASSERT_TRUE(c.link->connect(write_packet_offer(changed.offer, changed.link)).ok());
    d.connect(c);
    EXPECT_EQ(c.post(0, bytes == 0 ? 100 : bytes), net::Post::done);
    pair.settle();
    expect_received(d, 1);
    headless += bytes == 100;
    EXPECT_EQ(pair.sides[0].vci->counts().operations_of(vci::Work::Kind::small_wide), headless);
  }
}

TEST(Packets, AFullRingReturnsRetryUntilCreditComes) {
  PacketPair pair({}, {64, 4});
  EXPECT_EQ(fill(pair, pair.a, 8), 16u);  // a cell each
  EXPECT_EQ(pair.sides[0].lane->counts().no_packet, 0u);
  pair.settle();
  expect_received(pair.b, 16);
  // At half a ring a credit word came back, and at most another one for cells freed meanwhile; no
  // thread was woken for it.
  const PacketCounts counts = pair.sides[1].lane->counts();
  EXPECT_GE(counts.credit_words, 1u);
  EXPECT_LE(counts.credit_words, 2u);
  EXPECT_EQ(pair.sides[0].lane->counts().strays + pair.sides[0].lane->counts().delivered, 0u);
  EXPECT_EQ(pair.a.post(16, 8), net::Post::done);
  pair.settle();
  expect_received(pair.b, 17);
}

// A record that goes back anyway carries the credit: no word is written.
TEST(Packets, CreditTravelsWithRecords) {
  PacketPair pair;
  for (std::uint32_t i = 0; i < 200; ++i) {
    ASSERT_EQ(pair.a.post(i, 100), net::Post::done);
    pair.settle();
    ASSERT_EQ(pair.b.post(i, 8), net::Post::done);
    pair.settle();
  }
  expect_received(pair.b, 200);
  expect_received(pair.a, 200);
  EXPECT_EQ(pair.sides[0].lane->counts().credit_words, 0u);
  EXPECT_EQ(pair.sides[1].lane->counts().credit_words, 0u);
  EXPECT_EQ(pair.sides[0].lane->counts().no_room, 0u);
}

// So that the half of a position in the word is never four billion cells old.
TEST(Packets, WordsAreWrittenNowAndThenAllTheSame) {
  constexpr std::uint32_t kCells = 4096;
  loop::Fabric::Options network;
  network.delayed_percent = 0;
  network.pieces_max = 1;
  PacketPair pair(network, {4, 1024}, kCells, kCells);
  pair.a.react = pair.b.react = [](const PacketHeader&, std::span<const std::byte>) {};
  const std::uint32_t most = pair.a.link->payload_bytes_max();
  const std::vector<std::byte> payload(most);
  const auto exchange = [&](std::uint64_t cells) {
    for (; cells > 0; cells -= 1024) {
      ASSERT_EQ(pair.a.link->post({}, payload).value(), net::Post::done);
      pair.step();
      ASSERT_EQ(pair.b.link->post({}, {}).value(), net::Post::done);
      pair.step();
    }
  };
  exchange(PacketLink::kWordAgeMax);
  EXPECT_EQ(pair.sides[1].lane->counts().credit_words, 0u);
  exchange(kCells);
  EXPECT_EQ(pair.sides[1].lane->counts().credit_words, 1u);
  exchange(PacketLink::kWordAgeMax / 2);
  EXPECT_EQ(pair.sides[1].lane->counts().credit_words, 1u);
  EXPECT_EQ(pair.sides[0].lane->counts().no_room, 0u);
}

// Records are seen before their immediates come, so these may be more than the ring has cells.
TEST(Packets, ImmediatesOfRecordsThatWereSeenMayComeLate) {
  constexpr std::uint32_t kCells = 16, kLaps = 3;
  loop::Fabric::Options network;
  network.limits.first_word_last_bytes_max = UINT64_MAX;
  network.limits.immediates_max = kCells;
  network.turns_per_poll = 0;
  network.delayed_percent = 0;
  network.choose = [](std::uint64_t bound) { return bound - 1; };  // the last added one first
  PacketPair pair(network, kLane, kCells, kCells);
  for (std::uint32_t lap = 0; lap < kLaps; ++lap) {
    for (std::uint32_t i = 0; i < kCells; ++i) {
      ASSERT_EQ(pair.a.post(lap * kCells + i, 8), net::Post::done);
      pair.wire.turn(2);  // its bytes and its completion
      (void)pair.sides[0].vci->progress();
    }
    pair.wire.turn(1);  // the immediate of the last one
    (void)pair.sides[1].vci->progress();
    ASSERT_EQ(pair.b.received.size(), (lap + 1) * kCells);
    pair.wire.turn(2);  // the credit word
    (void)pair.sides[1].vci->progress();
  }
  pair.settle();
  EXPECT_TRUE(pair.a.link->failure().ok());
  EXPECT_EQ(pair.a.post(kLaps * kCells, 8), net::Post::done);
  pair.settle();
  EXPECT_EQ(pair.b.received.size(), kLaps * kCells + 1);
}

TEST(Packets, WithoutAPacketAPostReturnsRetry) {
  PacketPair pair({}, {2, 4});
  Packet* const first = pair.sides[0].lane->take_packet();
  Packet* const second = pair.sides[0].lane->take_packet();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(pair.sides[0].lane->take_packet(), nullptr);
  EXPECT_EQ(pair.a.post(0, 8), net::Post::retry);
  EXPECT_EQ(pair.sides[0].lane->counts().no_packet, 2u);
  EXPECT_EQ(pair.sides[0].lane->counts().no_room, 0u);
  pair.sides[0].lane->give_back(*second);
  EXPECT_EQ(pair.a.post(0, 8), net::Post::done);
  pair.settle();
  pair.sides[0].lane->give_back(*first);
  // Each is there again, once.
  EXPECT_NE(pair.sides[0].lane->take_packet(), nullptr);
  EXPECT_NE(pair.sides[0].lane->take_packet(), nullptr);
  EXPECT_EQ(pair.sides[0].lane->take_packet(), nullptr);
  expect_received(pair.b, 1);
}

// A record without room changes nothing: no packet, no position is lost.
TEST(Packets, ARetryCostsNothing) {
  PacketPair pair({}, {64, 4});
  const std::uint32_t posted = fill(pair, pair.a, 100);
  EXPECT_EQ(posted, 8u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pair.a.post(posted, 100), net::Post::retry);
  EXPECT_EQ(pair.sides[0].lane->counts().no_room, 101u);
  pair.settle();
  EXPECT_EQ(pair.a.post(posted, 100), net::Post::done);
  pair.settle();
  expect_received(pair.b, posted + 1);
  for (int i = 0; i < 64; ++i) ASSERT_NE(pair.sides[0].lane->take_packet(), nullptr);
}

// The ring is as small as its longest record: each one waits for the last one's credit.
TEST(Packets, TheSmallestRings) {
  for (const std::uint32_t cells : {1u, 2u, 4u}) {
    PacketPair pair({}, {4, cells}, cells, cells);
    const std::uint32_t most = pair.a.link->payload_bytes_max();
    for (std::uint32_t i = 0; i < 40; ++i) {
      const std::uint32_t bytes = i % 3 == 0 ? most : i % (most + 1);
      for (int tries = 0; pair.a.post(i, bytes) != net::Post::done; ++tries) {
        ASSERT_LT(tries, 10) << cells << " cells, record " << i;
        pair.settle();
      }
    }
    pair.settle();
    expect_received(pair.b, 40);
  }
}

// Records begin in every cell of the ring, also the last ones, from where they go beyond its end.
TEST(Packets, RecordsGoBeyondTheLastCell) {
  PacketPair pair({}, {8, 4}, 4, 8);
  std::uint32_t number = 0;
  for (std::uint32_t cells = 1; cells <= 4; ++cells)
    for (std::uint32_t i = 0; i < 30; ++i) {
      ASSERT_EQ(pair.a.post(number++, 64 * cells - 24 - i % 5), net::Post::done);
      pair.settle();
    }
  expect_received(pair.b, number);
}

TEST(Packets, ACallbackMayAnswer) {
  PacketPair pair;
  pair.b.react = [&](const PacketHeader& header, std::span<const std::byte> payload) {
    expect_intact(header, payload);
    ASSERT_EQ(pair.b.post(header[0], header[1]), net::Post::done);
  };
  for (std::uint32_t i = 0; i < 50; ++i) {
    ASSERT_EQ(pair.a.post(i, i), net::Post::done);
    pair.settle();
  }
  expect_received(pair.a, 50);
}

TEST(Packets, SeveralPairsOfOneLane) {
  PacketPair pair({}, {32, 4});
  PacketEnd c(pair.sides[0], 8), d(pair.sides[1], 32);
  c.connect(d);
  d.connect(c);
  for (std::uint32_t i = 0; i < 30; ++i) {
    ASSERT_EQ(pair.a.post(i, i), net::Post::done);
    ASSERT_EQ(c.post(i, 2 * i), net::Post::done);
    ASSERT_EQ(d.post(i, 3 * i), net::Post::done);
    pair.settle();
  }
  expect_received(pair.b, 30);
  expect_received(c, 30);
  expect_received(d, 30);
  EXPECT_TRUE(pair.a.received.empty());
  c.link.reset();
  d.link.reset();
}

// --- failures -----------------------------------------------------------------------------------

TEST(Packets, ADeadPeerIsReportedOnceAndEveryLaterPostFails) {
  PacketPair pair({}, {8, 4});
  ASSERT_EQ(pair.a.post(0, 8), net::Post::done);
  pair.settle();
  pair.wire.kill_process(1);
  for (std::uint32_t i = 0; i < 4; ++i) {
    (void)pair.a.link->post({}, {});
    pair.settle();
  }
  ASSERT_EQ(pair.a.failures.size(), 1u);
  EXPECT_EQ(pair.a.failures[0], Status(Errc::kPeerDown));
  EXPECT_EQ(pair.a.link->failure(), Status(Errc::kPeerDown));
  EXPECT_EQ(pair.a.link->post({}, {}).error(), Status(Errc::kPeerDown));
  EXPECT_TRUE(pair.a.link->is_quiet());
  for (int i = 0; i < 8; ++i) ASSERT_NE(pair.sides[0].lane->take_packet(), nullptr);
  expect_received(pair.b, 1);
}

// All posted records are complete, and the ring is full: no post can detect the failure by itself.
TEST(Packets, APeerThatDiedWithAFullRingIsNoticed) {
  loop::Fabric::Options network;
  network.turns_per_poll = 0;
  PacketPair pair(network, {32, 4});
  EXPECT_EQ(fill(pair, pair.a, 8), 16u);
  pair.wire.settle();
  pair.sides[0].vci->drain();
  ASSERT_TRUE(pair.a.link->is_quiet());
  // So many that a second probe would be due: one is posted.
  for (std::uint32_t i = 1; i < 2 * PacketLink::kRefusalsOfAProbe; ++i)
    ASSERT_EQ(pair.a.post(16, 8), net::Post::retry);
  EXPECT_EQ(pair.sides[0].vci->counts().operations_of(vci::Work::Kind::probe), 1u);
  EXPECT_FALSE(pair.a.link->is_quiet());
  pair.wire.kill_process(1);
  pair.settle();
  ASSERT_EQ(pair.a.failures, std::vector<Status>{Errc::kPeerDown});
  EXPECT_EQ(pair.a.link->post({}, {}).error(), Status(Errc::kPeerDown));
}

TEST(Packets, EndFailsAnIdleLink) {
  PacketPair pair;
  pair.a.link->end(Errc::kPeerDown);
  EXPECT_EQ(pair.a.failures, std::vector<Status>{Errc::kPeerDown});
  pair.a.link->end(Errc::kPeerDown);
  EXPECT_EQ(pair.a.failures.size(), 1u);
  EXPECT_EQ(pair.a.link->post({}, {}).error(), Status(Errc::kPeerDown));
}

// Records that have arrived are delivered, also on a link that can send nothing.
TEST(Packets, AFailedLinkStillDelivers) {
  loop::Fabric::Options network;
  network.turns_per_poll = 0;
  PacketPair pair(network, {16, 4});
  for (std::uint32_t i = 0; i < 12; ++i) ASSERT_EQ(pair.b.post(i, 8), net::Post::done);
  pair.a.link->end(Errc::kPeerDown);
  pair.settle();
  expect_received(pair.a, 12);
  EXPECT_EQ(pair.sides[0].lane->counts().credit_words, 0u);
}

TEST(Packets, AnImmediateOfNoLinkIsCounted) {
  PacketPair pair;
  pair.sides[0].vci->exclusively([&] {
    pair.sides[0].lane->on_immediate(packet_immediate(1, 0));
    pair.sides[0].lane->on_immediate(packet_immediate(0xffff, 0));
    pair.sides[0].lane->on_wide_immediate(std::uint64_t{1} << 63 | packet_immediate(1, 0));
  });
  EXPECT_EQ(pair.sides[0].lane->counts().strays, 3u);
  EXPECT_TRUE(pair.a.failures.empty());
}

// --- set-up -------------------------------------------------------------------------------------

TEST(PacketOffers, MalformedOffersAreRefused) {
  PacketPair pair;
  const std::vector<std::byte> good = pair.b.link->offer();
  EXPECT_LE(good.size(), kPacketOfferBytesMax);
  ASSERT_TRUE(parse_packet_offer(good));
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_EQ(parse_packet_offer(std::span(good).first(bytes)).error(), Status(Errc::kProtocol));
  const auto changed = [&](auto&& change) {
    std::vector<std::byte> bytes = good;
    PacketOffer offer;
    std::memcpy(&offer, bytes.data(), sizeof offer);
    change(offer);
    std::memcpy(bytes.data(), &offer, sizeof offer);
    return parse_packet_offer(bytes).error();
  };
  EXPECT_EQ(changed([](PacketOffer& o) { ++o.magic; }), Status(Errc::kProtocol));
  EXPECT_EQ(changed([](PacketOffer& o) { ++o.version; }), Status(Errc::kVersion));
  EXPECT_EQ(changed([](PacketOffer& o) { o.shape.cells = 0; }), Status(Errc::kProtocol));
  EXPECT_EQ(changed([](PacketOffer& o) { o.shape.cells = 24; }), Status(Errc::kProtocol));
  EXPECT_EQ(changed([](PacketOffer& o) { o.shape.cells = 1 << 17; }), Status(Errc::kProtocol));
  EXPECT_EQ(changed([](PacketOffer& o) { o.shape.record_cells = 0; }), Status(Errc::kProtocol));
  EXPECT_EQ(changed([](PacketOffer& o) { o.shape.record_cells = 17; }), Status(Errc::kProtocol));
  EXPECT_EQ(changed([](PacketOffer& o) { o.shape = {4096, 1025}; }), Status(Errc::kProtocol));
  EXPECT_EQ(changed([](PacketOffer& o) { --o.link_bytes; }), Status(Errc::kProtocol));
  std::vector<std::byte> longer = good;
  longer.resize(kPacketOfferBytesMax + 1);
  EXPECT_EQ(parse_packet_offer(longer).error(), Status(Errc::kProtocol));
  PacketEnd fresh(pair.sides[0], 16);
  EXPECT_EQ(fresh.link->connect({}), Status(Errc::kProtocol));
  fresh.link.reset();
}

TEST(PacketOffers, ShapesThatCannotBeAreRefused) {
  loop::Fabric wire({});
  EXPECT_EQ(PacketLane::create(wire, {0, 4}).error(), Status(Errc::kInvalidArgument));
  EXPECT_EQ(PacketLane::create(wire, {4, 0}).error(), Status(Errc::kInvalidArgument));
  EXPECT_EQ(PacketLane::create(wire, {4, 1025}).error(), Status(Errc::kInvalidArgument));
  PacketSide side(wire, kLane);
  PacketEnd good(side, 4);
  for (const std::uint32_t cells : {0u, 2u, 12u, 1u << 17})
    EXPECT_EQ(PacketLink::open(*side.lane, good, cells).error(), Status(Errc::kInvalidArgument));
}

TEST(PacketOffers, AFabricWhoseLinksCarryOneChannelIsRefused) {
  loop::Fabric::Options network;
  network.limits.channel_partitions_max = 8;
  loop::Fabric wire(network);
  EXPECT_EQ(PacketLane::create(wire, kLane).error(), Status(Errc::kBadOption));
}

// As many immediates as cells are reserved, and released; a refused reservation leaves nothing.
TEST(PacketOffers, ImmediatesAreReserved) {
  loop::Fabric::Options network;
  network.limits.immediates_max = 64;
  loop::Fabric wire(network);
  PacketSide side(wire, kLane);
  for (int i = 0; i < 3; ++i) {
    PacketEnd first(side, 32), second(side, 32);
    EXPECT_EQ(PacketLink::open(*side.lane, first, 4).error(), Status(Errc::kNoMemory));
  }
  EXPECT_TRUE(side.vci->reserve_immediates(64).ok());
  EXPECT_TRUE(wire.take_violations().empty());
}

// A slot is not reused while others are free: late records for it reach no link.
TEST(PacketOffers, SlotsAreNotReusedSoon) {
  loop::Fabric wire({});
  PacketSide side(wire, kLane);
  const auto slot = [&] {
    PacketEnd end(side, 4);
    return parse_packet_offer(end.link->offer())->offer.slot;
  };
  EXPECT_EQ(slot(), 0);
  EXPECT_EQ(slot(), 1);
  EXPECT_EQ(slot(), 2);
}

// --- layout -------------------------------------------------------------------------------------

TEST(PacketWire, MemoryOfAPairAndOfALane) {
  // docs/design/protocols/packets.md says these numbers.
  const auto ring_bytes = [](bool is_progress_manual) {
    net::Limits network{};
    network.is_progress_manual = is_progress_manual;
    return RingShape{PacketLink::cells_on(network), PacketLane::Options().record_cells}.lines() *
           64;
  };
  // Of one that grows, before that: its credit, its cells, and the room behind them.
  net::Limits shm{};
  shm.has_mapped_memory = true;
  constexpr std::uint32_t kRecordCells = PacketLane::Options().record_cells;
  const RingShape growing{PacketLink::kGrownCells, kRecordCells,
                          PacketLink::first_cells_on(shm, kRecordCells)};
  EXPECT_TRUE(growing.grows() && growing.is_legal());
  EXPECT_EQ((1 + growing.covered_at_first()) * 64, 16'384u);
  EXPECT_EQ(growing.lines() * 64, 532'480u);
  EXPECT_EQ(ring_bytes(false), 73'728u);
  EXPECT_EQ(ring_bytes(true), 270'336u);
  EXPECT_LE(sizeof(PacketLink), 1536u);
  EXPECT_LE(sizeof(PacketInbox), 192u);
  EXPECT_LE(sizeof(Packet), 256u);
  EXPECT_EQ(PacketLane::Options().packets * PacketLane::Options().record_cells * 64, 2u << 20);
}

TEST(PacketWire, ARecordTakesAsManyCellsAsItNeeds) {
  EXPECT_EQ(record_cells_of(0), 1u);
  EXPECT_EQ(record_cells_of(40), 1u);
  EXPECT_EQ(record_cells_of(41), 2u);
  EXPECT_EQ(record_cells_of(RingShape{8, 8}.payload_bytes_max()), 8u);
}

TEST(PacketWire, UnreturnedCreditLeavesRoomForARecord) {
  for (std::uint32_t cells = 1; cells <= 1024; cells *= 2)
    for (std::uint32_t record = 1; record <= cells; ++record) {
      const std::uint32_t untold = RingShape{cells, record}.untold_max();
      EXPECT_GE(cells - untold, record);
      EXPECT_LT(untold, std::max(cells / 2, 1u));
    }
}

TEST(PacketWire, NoCreditWordIsNone) {
  for (const std::uint32_t generation : {0u, 1u, 77u, ~0u})
    EXPECT_FALSE(credit_word::freed_low(credit_word::none(generation), generation));
}

// A credit word that is torn between two words is invalid, wherever the tear is.
TEST(PacketWire, ATornCreditWordIsNone) {
  loop::Random random(11);
  for (int i = 0; i < 20'000; ++i) {
    const auto generation = static_cast<std::uint32_t>(random.next());
    const std::uint64_t old = random.next() >> 20, next = old + 1 + random.below(70'000);
    const std::uint64_t a = credit_word::make(old, generation);
    const std::uint64_t b = credit_word::make(next, generation);
    EXPECT_EQ(credit_word::freed_low(b, generation), static_cast<std::uint32_t>(next));
    EXPECT_FALSE(credit_word::freed_low(b, generation + 1));
    for (int torn = 1; torn < 8; ++torn) {
      const std::uint64_t first = (std::uint64_t{1} << 8 * torn) - 1;
      const std::uint64_t word = (b & first) | (a & ~first);
      if (word == a || word == b) continue;
      EXPECT_FALSE(credit_word::freed_low(word, generation)) << old << " to " << next;
    }
  }
}

}  // namespace
}  // namespace larklane::msg
