// A peer that writes arbitrary bytes into a ring.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "msg/packet/packet_link.hpp"
#include "msg/packet/packet_wire.hpp"
#include "net/loop/random.hpp"
#include "prop/msg_seeds.hpp"
#include "unit/msg_packet_pair.hpp"
#include "unit/net_pair.hpp"

namespace larklane::msg {
namespace {

constexpr RingShape kShape{16, 4};
constexpr std::uint32_t kPeerGeneration = 5;

/// The test is one end of the pair.
struct BadPeer {
  explicit BadPeer(std::uint16_t headless_bytes = 0, std::uint32_t first_cells = 0)
      : wire(network(headless_bytes)),
        other(wire.for_process()),
        side(wire, {8, kShape.record_cells}),
        end(side, kShape.cells, first_cells) {
    raw.open(*other);
    const std::vector<std::byte> bytes = end.link->offer();
    auto parsed = parse_packet_offer(bytes);
    ring = parsed->offer;
    PacketOffer mine{};
    mine.shape = kShape;
    mine.generation = kPeerGeneration;
    mine.headless_bytes = headless_bytes;
    mine.ring = raw.memory->remote();
    EXPECT_TRUE(end.link->connect(write_packet_offer(mine, raw.link->offer())).ok());
    EXPECT_TRUE(raw.link->connect(parsed->link).ok());
    EXPECT_TRUE(raw.endpoint->reserve_immediates(64).ok());
  }
  ~BadPeer() {
    settle();
    end.link.reset();
    expect_no_violations(wire);
  }
  void settle() {
    for (int i = 0; i < 8; ++i) {
      wire.settle();
      side.vci->drain();
      raw.poll();
    }
  }

  static loop::Fabric::Options network(std::uint16_t headless_bytes) {
    loop::Fabric::Options options{.limits = {1u << 20, 1u << 20, 4096, 4096, false, "loop"}};
    options.limits.has_wide_immediates = headless_bytes != 0;
    if (headless_bytes != 0) options.limits.small_bytes_max = headless_bytes;
    return options;
  }
  std::uint64_t first() const { return ring.shape.first_position(); }
  RecordHead head(std::uint64_t position, std::uint32_t bytes) const {
    // Nothing of ours has been freed.
    const PacketHeader header = header_of(7, bytes);
    return {stamp_of(position, ring.generation),
            header[0],
            kShape.first_position() << RecordHead::kBytesBits | bytes,
            {header[1], header[2]}};
  }
  void write(std::span<const std::byte> bytes, std::uint32_t cell, std::uint32_t immediate_cell) {
    net::Sent sent;
    const net::RemoteMemory to{ring.ring.address + ring_offset_of(cell), ring.ring.key};
    net::expect_posted(raw.link->write_small_immediate(
        bytes, to, packet_immediate(ring.slot, immediate_cell), sent));
    settle();
    EXPECT_TRUE(sent.is_over());
  }
  void write(const RecordHead& record, std::uint32_t cell) {
    std::vector<std::byte> bytes(std::max<std::size_t>(sizeof record, 256));
    std::memcpy(bytes.data(), &record, sizeof record);
    fill_payload(std::span(bytes).subspan(sizeof record, std::min(record.header()[1], 232u)),
                 record.header());
    write(bytes, cell, cell);
  }
  void write_credit(std::uint64_t word) {
    net::Sent sent;
    net::expect_posted(raw.link->write_small(std::as_bytes(std::span(&word, 1)), ring.ring, sent));
    settle();
    EXPECT_TRUE(sent.is_over());
  }
  void expect_protocol_error(std::size_t received) {
    EXPECT_EQ(end.failures, std::vector<Status>{Errc::kProtocol});
    EXPECT_EQ(end.link->post({}, {}).error(), Status(Errc::kProtocol));
    EXPECT_EQ(end.received.size(), received);
    write(head(first(), 8), 0);  // it is deaf
    write(head(first() + 1, 8), 1);
    EXPECT_EQ(end.received.size(), received);
    EXPECT_EQ(end.failures.size(), 1u);
  }

  loop::Fabric wire;
  std::unique_ptr<net::Fabric> other;
  PacketSide side;
  PacketEnd end;
  net::Side raw;
  PacketOffer ring{};
};

TEST(BadRecords, AGoodOneIsDelivered) {
  BadPeer peer;
  peer.write(peer.head(peer.first(), 232), 0);
  peer.write(peer.head(peer.first() + 4, 0), 4);
  ASSERT_EQ(peer.end.received.size(), 2u);
  expect_intact(peer.end.received[0].header, peer.end.received[0].payload);
  EXPECT_TRUE(peer.end.failures.empty());
}

RecordHead mark_of(const BadPeer& peer, std::uint64_t position) {
  return {stamp_of(position, peer.ring.generation), 0, RecordHead::kMarkBytes, {}};
}

TEST(BadRecords, AMarkMakesAGrowingRingGrowOnce) {
  BadPeer peer(0, 4);
  ASSERT_EQ(peer.ring.shape.first_cells, 4u);
  peer.write(peer.head(peer.first(), 8), 0);
  peer.write(mark_of(peer, peer.first() + 1), 1);
  const std::uint64_t grown = peer.ring.shape.grown_position(peer.first() + 1);
  peer.write(peer.head(grown, 8), peer.ring.shape.index_of(grown));
  EXPECT_EQ(peer.end.received.size(), 2u);
  EXPECT_TRUE(peer.end.failures.empty());
  peer.write(mark_of(peer, grown + 1), peer.ring.shape.index_of(grown + 1));
  peer.expect_protocol_error(2);
}

TEST(BadRecords, AMarkOfARingThatDoesNotGrow) {
  BadPeer peer;
  peer.write(mark_of(peer, peer.first()), 0);
  peer.expect_protocol_error(0);
}

TEST(BadRecords, AMarkThatSaysMore) {
  for (const std::uint64_t more : {std::uint64_t{1} << 16, RecordHead::kIsFollowed}) {
    BadPeer peer(0, 4);
    RecordHead mark = mark_of(peer, peer.first());
    mark.freed_and_bytes |= more;
    peer.write(mark, 0);
    peer.expect_protocol_error(0);
  }
}

// An answer posted from the callback does not free the record that the callback reads.
TEST(BadRecords, AnAnswerDoesNotFreeItsRecord) {
  BadPeer peer;
  peer.end.react = [&](const PacketHeader&, std::span<const std::byte>) {
    EXPECT_EQ(peer.end.link->post({}, {}).value(), net::Post::done);
  };
  for (std::uint32_t i = 0; i < 2; ++i) {
    peer.write(peer.head(peer.first() + i, 8), i);
    RecordHead answer;
    std::memcpy(&answer, peer.raw.bytes.data() + ring_offset_of(i), sizeof answer);
    EXPECT_EQ(answer.stamp, stamp_of(kShape.first_position() + i, kPeerGeneration));
    EXPECT_EQ(answer.freed(), peer.first() + i);
  }
}

TEST(BadRecords, ALengthThatIsTooGreat) {
  for (const std::uint32_t bytes : {233u, 1000u, 65'535u}) {
    BadPeer peer;
    peer.write(peer.head(peer.first(), bytes), 0);
    peer.expect_protocol_error(0);
  }
}

TEST(BadRecords, WithoutAHeadWhereNoneWasAgreedOrOutside) {
  const auto write = [](BadPeer& peer, std::uint32_t cell, std::uint32_t bytes) {
    const std::vector<std::byte> payload(bytes, std::byte{7});
    const PacketHeader header = header_of(7, bytes);
    net::Sent sent;
    const net::RemoteMemory to{
        peer.ring.ring.address + ring_offset_of(cell % kShape.cells) + sizeof(RecordHead),
        peer.ring.ring.key};
    net::expect_posted(peer.raw.link->write_small_wide(
        payload, to,
        std::uint64_t{*short_header::encode(header)} << 32 | packet_immediate(peer.ring.slot, cell),
        sent));
    peer.settle();
  };
  {
    BadPeer peer(100);
    write(peer, 2, 100);  // waits for the one at the head
    EXPECT_EQ(peer.end.received.size(), 0u);
    write(peer, 0, 100);
    ASSERT_EQ(peer.end.received.size(), 2u);
    EXPECT_EQ(peer.end.received[0].header, header_of(7, 100));
    EXPECT_EQ(peer.end.received[0].payload, std::vector<std::byte>(100, std::byte{7}));
    write(peer, 2, 100);  // again: its turn is not now
    write(peer, 2, 100);
    EXPECT_EQ(peer.end.failures, std::vector<Status>{Errc::kProtocol});
  }
  for (const std::uint32_t cell : {16u, 17u, 0xffffu}) {
    BadPeer peer(100);
    write(peer, cell, 100);
    EXPECT_EQ(peer.end.failures, std::vector<Status>{Errc::kProtocol});
  }
  {
    BadPeer peer;
    write(peer, 0, 100);
    peer.expect_protocol_error(0);
  }
  {
    BadPeer peer(1000);  // more than a record may have
    write(peer, 0, 16);
    EXPECT_EQ(peer.end.failures, std::vector<Status>{Errc::kProtocol});
    EXPECT_TRUE(peer.end.received.empty());
    write(peer, 0, 16);  // it is deaf
    EXPECT_EQ(peer.end.failures.size(), 1u);
  }
}

TEST(BadRecords, AnotherPosition) {
  for (const std::uint64_t position : {1u, 16u, 1u << 20}) {
    BadPeer peer;
    peer.write(peer.head(peer.first() + position, 8), 0);
    peer.expect_protocol_error(0);
  }
}

TEST(BadRecords, ARecordOfAnotherRing) {
  BadPeer peer;
  RecordHead head = peer.head(peer.first(), 8);
  ++head.stamp;  // as with the next generation
  peer.write(head, 0);
  peer.expect_protocol_error(0);
}

TEST(BadRecords, ACellOutsideOfTheRing) {
  BadPeer peer;
  peer.write({}, 0, 16);
  peer.expect_protocol_error(0);
}

TEST(BadRecords, ACellThatHasBeenRead) {
  BadPeer peer;
  peer.write(peer.head(peer.first() + 3, 8), 3);
  EXPECT_TRUE(peer.end.failures.empty());
  peer.write({}, 0, 3);
  peer.expect_protocol_error(0);
}

TEST(BadRecords, ARecordThatAnnouncesAMissingFollower) {
  BadPeer peer;
  RecordHead lying = peer.head(peer.first(), 8);
  lying.freed_and_bytes |= RecordHead::kIsFollowed;
  peer.write(lying, 0);
  peer.expect_protocol_error(1);
}

// A peer that writes on and on behind the reader would keep the lane.
TEST(BadRecords, RecordsThatFollowEachOtherForMoreThanALap) {
  BadPeer peer;
  std::uint64_t heard = 0;
  std::byte* ring = nullptr;
  const auto followed = [&](std::uint64_t position) {
    RecordHead head = peer.head(position, 8);
    head.freed_and_bytes |= RecordHead::kIsFollowed;
    return head;
  };
  peer.end.react = [&](const PacketHeader&, std::span<const std::byte> payload) {
    if (heard == 0) ring = const_cast<std::byte*>(payload.data()) - sizeof(RecordHead);
    ASSERT_LE(++heard, 100u);
    const RecordHead next = followed(peer.first() + heard);
    std::memcpy(ring + heard % kShape.cells * kCellBytes, &next, sizeof next);
  };
  peer.write(followed(peer.first()), 0);
  EXPECT_EQ(heard, 16u);
  EXPECT_EQ(peer.end.failures, std::vector<Status>{Errc::kProtocol});
}

// Reported when the head comes there: it finds the inside of a record that it has passed.
TEST(BadRecords, ACellInsideOfARecord) {
  BadPeer peer;
  peer.write({}, 0, 2);
  peer.write(peer.head(peer.first(), 232), 0);
  EXPECT_EQ(peer.end.received.size(), 1u);
  peer.write(peer.head(peer.first() + 4, 232), 4);
  peer.write(peer.head(peer.first() + 8, 232), 8);
  peer.write(peer.head(peer.first() + 12, 232), 12);
  EXPECT_TRUE(peer.end.failures.empty());
  peer.write(peer.head(peer.first() + 16, 100), 0);
  peer.expect_protocol_error(5);
}

TEST(BadRecords, CreditForCellsThatWereNeverPosted) {
  BadPeer peer;
  RecordHead head = peer.head(peer.first(), 8);
  head.freed_and_bytes += std::uint64_t{1} << RecordHead::kBytesBits;
  peer.write(head, 0);
  peer.expect_protocol_error(0);
}

// Words that make no sense, or are not whole yet, give no room.
TEST(BadRecords, CreditWordsThatMakeNoSense) {
  BadPeer peer;
  EXPECT_EQ(peer.end.link->post({}, std::vector<std::byte>(200)).value(), net::Post::done);
  for (std::uint32_t i = 0; i < 3; ++i) {
    peer.settle();
    EXPECT_EQ(peer.end.link->post({}, std::vector<std::byte>(200)).value(), net::Post::done);
  }
  const auto has_room = [&] {
    peer.settle();
    auto answer = peer.end.link->post({}, {});
    return answer.value() == net::Post::done;
  };
  const std::uint64_t first = kShape.first_position();
  const std::uint32_t mine = peer.ring.generation;
  EXPECT_FALSE(has_room());
  for (const std::uint64_t word :
       {credit_word::make(first + 17, mine), credit_word::make(first - 1, mine),
        credit_word::make(first + (1u << 31), mine), credit_word::make(first + 4, mine + 1),
        credit_word::make(first + 4, mine) ^ 1, std::uint64_t{0}, ~std::uint64_t{0}}) {
    peer.write_credit(word);
    EXPECT_FALSE(has_room()) << word;
  }
  peer.write_credit(credit_word::make(first + 1, mine));
  EXPECT_TRUE(has_room());
  EXPECT_FALSE(has_room());
  peer.write_credit(credit_word::make(first, mine));  // an older one takes nothing back
  EXPECT_FALSE(has_room());
  peer.write_credit(credit_word::make(first + 2, mine));
  EXPECT_TRUE(has_room());
  EXPECT_TRUE(peer.end.failures.empty());
}

// Good and bad records, cut and changed at random. The receiver delivers exactly the records that a
// reader of the same bytes would, and reads or writes nothing outside.
TEST(BadRecords, AnyBytes) {
  for (const std::uint64_t seed : seeds(1, 300)) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    loop::Random random(seed);
    BadPeer peer;
    std::uint64_t position = peer.first();
    std::size_t good = 0;
    while (peer.end.failures.empty() && good < 40) {
      const auto bytes = static_cast<std::uint32_t>(random.below(233));
      RecordHead head = peer.head(position, bytes);
      std::uint32_t cell = kShape.index_of(position);
      const bool is_bad = random.one_in(8);
      if (is_bad) {
        auto* const at = reinterpret_cast<std::byte*>(&head);
        at[random.below(12)] ^= std::byte{1} << random.below(8);
        if (random.one_in(2)) cell = static_cast<std::uint32_t>(random.below(kShape.cells));
      } else {
        position += record_cells_of(bytes);
        ++good;
      }
      std::vector<std::byte> record(sizeof head + 232);
      std::memcpy(record.data(), &head, sizeof head);
      fill_payload(std::span(record).subspan(sizeof head, bytes), head.header());
      peer.write(record, cell, cell);
      for (const Received& received : peer.end.received)
        ASSERT_LE(received.payload.size(), kShape.payload_bytes_max());
      if (is_bad) break;  // it may be one that makes sense
      ASSERT_TRUE(peer.end.failures.empty());
      ASSERT_EQ(peer.end.received.size(), good);
      expect_intact(peer.end.received.back().header, peer.end.received.back().payload);
    }
    for (int i = 0; i < 20; ++i) {
      std::vector<std::byte> noise(random.below(257));
      for (std::byte& byte : noise) byte = static_cast<std::byte>(random.next());
      peer.write(noise, static_cast<std::uint32_t>(random.below(kShape.cells)),
                 static_cast<std::uint32_t>(random.below(kShape.cells + 1)));
    }
    EXPECT_LE(peer.end.failures.size(), 1u);
  }
}

}  // namespace
}  // namespace larklane::msg
