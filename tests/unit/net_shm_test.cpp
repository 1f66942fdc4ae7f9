// Provider shm: the queue of immediates, arbitrary catalogues of peers, offers, and endpoints of
// one process. Between processes: net_shm_process_test.cpp. One thread: atomics are relaxed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "net/loop/random.hpp"
#include "net/shm/network_catalogue.hpp"
#include "net/shm/network_endpoint.hpp"
#include "net/shm/network_fabric.hpp"
#include "net/shm/network_offer.hpp"
#include "net/shm/network_peer.hpp"
#include "net/shm/network_queue.hpp"
#include "unit/net_pair.hpp"

namespace larklane::shm {
namespace {

// --- the queue ----------------------------------------------------------------------------------

struct Queue {
  Queue() : area(std::make_unique<QueueArea>()), receiver(*area, kEndpoint) {}
  static constexpr std::uint64_t kEndpoint = 7;

  QueueSender sender() { return {*area, kEndpoint}; }
  std::vector<std::uint32_t> take(std::uint32_t most) {
    std::vector<std::uint32_t> heard;
    const std::uint32_t count =
        receiver.poll(most, [&](std::uint32_t each) { heard.push_back(each); });
    EXPECT_EQ(count, heard.size());
    return heard;
  }
  std::unique_ptr<QueueArea> area;
  QueueReceiver receiver;
};

TEST(ShmQueue, PushedValuesArriveOnceInOrderForSeveralLaps) {
  Queue queue;
  QueueSender sender = queue.sender();
  std::uint32_t pushed = 0, heard = 0;
  loop::Random random(1);
  while (pushed < 3 * QueueArea::kSlots) {
    for (auto i = random.below(3000); i > 0; --i) ASSERT_TRUE(sender.push(pushed++));
    for (const std::uint32_t each : queue.take(QueueArea::kSlots)) ASSERT_EQ(each, heard++);
    ASSERT_EQ(heard, pushed);
  }
  EXPECT_TRUE(queue.take(1).empty());
}

// Immediates may have any value, that of an empty slot as well.
TEST(ShmQueue, AllValuesTravel) {
  Queue queue;
  QueueSender sender = queue.sender();
  for (const std::uint32_t value : {0u, 1u, ~0u, 1u << 31}) {
    ASSERT_TRUE(sender.push(value));
    EXPECT_EQ(queue.take(8), std::vector{value});
  }
}

TEST(ShmQueue, AFullOneTakesNoMoreAndLosesNothing) {
  Queue queue;
  QueueSender sender = queue.sender();
  for (std::uint32_t i = 0; i < QueueArea::kSlots; ++i) ASSERT_TRUE(sender.push(i));
  EXPECT_FALSE(sender.has_room());
  EXPECT_FALSE(sender.push(77));
  QueueSender other = queue.sender();
  EXPECT_FALSE(other.push(77));
  EXPECT_EQ(queue.take(2), (std::vector{0u, 1u}));
  EXPECT_TRUE(other.push(QueueArea::kSlots));
  EXPECT_TRUE(sender.push(QueueArea::kSlots + 1));
  EXPECT_FALSE(sender.push(77));
  std::uint32_t next = 2;
  for (const std::uint32_t each : queue.take(2 * QueueArea::kSlots)) ASSERT_EQ(each, next++);
  EXPECT_EQ(next, QueueArea::kSlots + 2);
}

TEST(ShmQueue, SendersThatDoNotKnowOfEachOtherFindTheTail) {
  Queue queue;
  std::vector<QueueSender> senders(3, queue.sender());
  loop::Random random(2);
  std::uint32_t pushed = 0, heard = 0;
  while (pushed < 2 * QueueArea::kSlots) {
    QueueSender& sender = senders[random.below(senders.size())];
    for (auto i = random.below(2000); i > 0; --i) ASSERT_TRUE(sender.push(pushed++));
    if (random.one_in(8)) senders[0] = queue.sender();  // a new one
    for (const std::uint32_t each : queue.take(1500)) ASSERT_EQ(each, heard++);
    if (pushed - heard > QueueArea::kSlots / 2) {
      for (const std::uint32_t each : queue.take(QueueArea::kSlots)) ASSERT_EQ(each, heard++);
    }
  }
}

// One was killed between the two stores of a push.
TEST(ShmQueue, ATailThatIsBehindIsPassed) {
  Queue queue;
  QueueSender first = queue.sender(), second = queue.sender();
  for (std::uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(first.push(i));
  queue.area->tail.store(3, std::memory_order_relaxed);
  ASSERT_TRUE(second.push(100));
  ASSERT_TRUE(first.push(101));
  for (std::uint32_t i = 0; i < 102; ++i) ASSERT_EQ(queue.take(1), std::vector{i});
}

// It was stopped in a push, and the endpoint is gone; another one has its place.
TEST(ShmQueue, ALateSenderDoesNotReachTheNextOne) {
  for (const std::uint32_t before : {0u, 5u, 5000u}) {
    const auto area = std::make_unique<QueueArea>();
    QueueReceiver first(*area, 1);
    QueueSender late(*area, 1);
    for (std::uint32_t i = 0; i < before; ++i) ASSERT_TRUE(late.push(i));
    first.close();
    QueueReceiver second(*area, 2);
    QueueSender one(*area, 2), two(*area, 2);
    EXPECT_TRUE(one.push(1));
    EXPECT_FALSE(late.push(77));
    EXPECT_TRUE(two.push(2));
    std::vector<std::uint32_t> heard;
    EXPECT_EQ(second.poll(8, [&](std::uint32_t each) { heard.push_back(each); }), 2u);
    EXPECT_EQ(heard, (std::vector{1u, 2u}));
  }
}

// With any contents of the ring every loop ends, and no access leaves the ring.
TEST(ShmQueue, ArbitraryContentsAreHarmless) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    loop::Random random(seed);
    Queue queue;
    QueueSender sender = queue.sender();
    for (int i = 0; i < 2000; ++i) {
      if (random.one_in(4))
        queue.area->tail.store(random.next() >> random.below(64), std::memory_order_relaxed);
      if (random.one_in(4))
        queue.area->head.store(random.next() >> random.below(64), std::memory_order_relaxed);
      if (random.one_in(2))
        queue.area->at(random.next())
            .store(random.next() >> random.below(64), std::memory_order_relaxed);
      (void)sender.push(1);
      (void)queue.take(16);
    }
  }
}

// --- catalogue and peer -------------------------------------------------------------------------

/// This process as its own peer.
struct Shown {
  Shown()
      : own(std::move(ProcessIdentity::own().value())),
        catalogue(std::move(Catalogue::create().value())),
        area(*static_cast<CatalogueArea*>(::mmap(nullptr, sizeof(CatalogueArea),
                                                 PROT_READ | PROT_WRITE, MAP_SHARED,
                                                 catalogue->fd(), 0))),
        peer(std::move(Peer::open(offer(), own).value())) {}
  ~Shown() { ::munmap(&area, sizeof area); }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  NetworkOffer offer() const {
    NetworkOffer offer{};
    offer.identity = own;
    offer.nonce = catalogue->nonce();
    offer.catalogue_fd = catalogue->fd();
    return offer;
  }
  MemoryRow& row_of(std::uint64_t key) { return area.rows[key & 0xffff]; }

  const ProcessIdentity own;
  const std::unique_ptr<Catalogue> catalogue;
  CatalogueArea& area;  // as a peer that writes nonsense has it
  const std::shared_ptr<Peer> peer;
};

constexpr Status kNoSuch{Errc::kTransfer, EACCES};

TEST(ShmPeer, AKeyLeadsToItsMemoryUntilItIsTakenBack) {
  Shown shown;
  std::vector<std::byte> bytes(100);
  const std::uint64_t base = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uint64_t key = shown.catalogue->add(bytes.data(), 100).value();
  auto region = shown.peer->find(key);
  ASSERT_TRUE(region);
  EXPECT_EQ(region->at({base, key}), nullptr) << "peers can't map it";
  EXPECT_TRUE(region->holds({base, key}, 100));
  EXPECT_TRUE(region->holds({base + 100, key}, 0));
  EXPECT_FALSE(region->holds({base, key}, 101));
  EXPECT_FALSE(region->holds({base + 1, key}, 100));
  EXPECT_FALSE(region->holds({base - 1, key}, 1));
  EXPECT_FALSE(region->holds({base, key}, ~std::uint64_t{0}));
  EXPECT_FALSE(region->holds({base, key + 1}, 1));
  shown.catalogue->remove(key);
  EXPECT_FALSE(region->holds({base, key}, 1));
  EXPECT_EQ(shown.peer->find(key).error(), kNoSuch);
  const std::uint64_t again = shown.catalogue->add(bytes.data(), 100).value();
  EXPECT_EQ(again & 0xffff, key & 0xffff) << "the row is used again";
  EXPECT_EQ(shown.peer->find(key).error(), kNoSuch);
  EXPECT_TRUE(shown.peer->find(again));
  EXPECT_FALSE(region->holds({base, key}, 1));
  EXPECT_EQ(shown.peer->find(0).error(), kNoSuch);
  EXPECT_EQ(shown.peer->find(again | 0xffff).error(), kNoSuch);
}

TEST(ShmPeer, RowsAreAsManyAsThereAre) {
  Shown shown;
  std::vector<std::uint64_t> keys;
  for (std::uint32_t i = 0; i < CatalogueArea::kRows - CatalogueArea::kPieceRows; ++i)
    keys.push_back(shown.catalogue->add(nullptr, 0).value());
  EXPECT_EQ(shown.catalogue->add(nullptr, 0).error().code(), Errc::kNoMemory);
  const Catalogue::Piece ring = shown.catalogue->allocate(64).value();
  EXPECT_TRUE(shown.catalogue->add(ring.start, 64, ring.place)) << "one of those that are left";
  for (const std::size_t one : {5u, 6u}) shown.catalogue->remove(keys[one]);
  EXPECT_TRUE(shown.catalogue->add(nullptr, 0));
}

TEST(ShmCatalogue, PagesAreAllocatedWithTheirFirstRow) {
  constexpr std::uint64_t kPageBytes = 4096;
  const std::unique_ptr<Catalogue> catalogue = std::move(Catalogue::create().value());
  const auto pages = [&] {
    struct stat info {};
    EXPECT_EQ(::fstat(catalogue->fd(), &info), 0);
    return static_cast<std::uint64_t>(info.st_blocks) * 512 / kPageBytes;
  };
  if (pages() >= sizeof(CatalogueArea) / kPageBytes)
    GTEST_SKIP() << "this kernel allocates all at once";
  EXPECT_EQ(pages(), 2u);
  for (std::uint64_t rows = 1; rows <= 1000; ++rows) {
    ASSERT_TRUE(catalogue->add(nullptr, 0));
    const std::uint64_t used = offsetof(CatalogueArea, rows) + rows * sizeof(MemoryRow);
    ASSERT_EQ(pages(), (used + kPageBytes - 1) / kPageBytes) << rows;
  }
}

TEST(ShmPeer, AllocatedMemoryIsZeroedAndMappedOnce) {
  Shown shown;
  const Catalogue::Piece piece = shown.catalogue->allocate(5000).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.start) % 4096, 0u);
  const std::uint64_t key = shown.catalogue->add(piece.start, 5000, piece.place).value();
  auto region = shown.peer->find(key);
  ASSERT_TRUE(region);
  const std::uint64_t base = reinterpret_cast<std::uintptr_t>(piece.start);
  EXPECT_EQ(region->at({base + 10, key}), piece.start + 10) << "of our own process: the same";
  EXPECT_FALSE(region->holds({base, key}, 5001)) << "no more than was asked for";
  std::fill_n(piece.start, piece.bytes, std::byte{1});
  shown.catalogue->release(piece);
  const Catalogue::Piece again = shown.catalogue->allocate(4097).value();
  EXPECT_EQ(again.start, piece.start);
  EXPECT_TRUE(std::all_of(again.start, again.start + again.bytes,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_EQ(shown.catalogue->allocate(~std::uint64_t{0}).error().code(), Errc::kNoMemory);
}

TEST(ShmPeer, MemoryThatIsGivenBackIsUsedForOthersOfAboutItsSize) {
  const auto catalogue = std::move(Catalogue::create().value());
  const Catalogue::Piece first = catalogue->allocate(70'000).value();
  EXPECT_GE(first.bytes, 70'000u);
  EXPECT_LE(first.bytes, 70'000u * 5 / 4);
  catalogue->release(first);
  for (const std::uint64_t bytes : {66'000u, 80'000u, 73'728u}) {
    const Catalogue::Piece again = catalogue->allocate(bytes).value();
    EXPECT_EQ(again.start, first.start) << bytes;
    catalogue->release(again);
  }
}

// A late put of a program hits no ring.
TEST(ShmPeer, NoSegmentHoldsMemoryOfTheLibraryAndOfPrograms) {
  using Use = Catalogue::Use;
  const auto catalogue = std::move(Catalogue::create().value());
  std::set<std::uint32_t> segments[2];
  loop::Random random(4);
  for (int turn = 0; turn < 400; ++turn) {
    const bool is_programs = random.one_in(2);
    auto piece =
        catalogue->allocate(1 + random.below(200'000), is_programs ? Use::program : Use::library);
    ASSERT_TRUE(piece);
    segments[is_programs].insert(piece->place.segment);
    if (random.one_in(2)) catalogue->release(*piece);
  }
  for (const std::uint32_t segment : segments[0]) EXPECT_FALSE(segments[1].contains(segment));
  const std::uint64_t key = catalogue->add(&catalogue, 8, {}, Use::program).value();
  EXPECT_NE(key & net::Mapping::kKeyBit, 0u);
  EXPECT_EQ(catalogue->add(&catalogue, 8).value() & net::Mapping::kKeyBit, 0u);
}

TEST(ShmPeer, RowsThatMakeNoSenseLeadNowhere) {
  Shown shown;
  const Catalogue::Piece piece = shown.catalogue->allocate(4096).value();
  const std::uint64_t key = shown.catalogue->add(piece.start, 4096, piece.place).value();
  MemoryRow& row = shown.row_of(key);
  const auto with = [&](std::atomic<std::uint64_t>& field, std::uint64_t value) {
    const std::uint64_t before = field.exchange(value, std::memory_order_relaxed);
    const Status status = shown.peer->find(key).error();
    field.store(before, std::memory_order_relaxed);
    return status;
  };
  ASSERT_TRUE(shown.peer->find(key));
  EXPECT_EQ(with(row.bytes, std::uint64_t{1} << 40), Status(Errc::kProtocol));
  EXPECT_EQ(with(row.bytes, ~std::uint64_t{0}), Status(Errc::kTransfer, EFAULT));
  EXPECT_EQ(with(row.place, Place{1, std::uint64_t{1} << 40}.word()), Status(Errc::kProtocol));
  EXPECT_EQ(with(row.place, Place{2, 0}.word()), Status(Errc::kProtocol));
  EXPECT_EQ(with(row.place, Place{CatalogueArea::kSegments + 1, 0}.word()),
            Status(Errc::kProtocol));
  EXPECT_EQ(with(row.generation, 1), kNoSuch);
  EXPECT_TRUE(shown.peer->find(key));
}

// A segment's row may name any descriptor of the peer's.
TEST(ShmPeer, SegmentsThatAreNoneAreNotMapped) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reads(ends[0]), writes(ends[1]), null(::open("/dev/null", O_RDWR | O_CLOEXEC)),
      loose(::memfd_create("loose", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(loose.get(), 2 << 20), 0);
  Shown first;
  ASSERT_TRUE(first.catalogue->allocate(1));
  const int others = first.area.segments[0].fd.load(std::memory_order_relaxed);
  for (const int fd :
       {reads.get(), null.get(), loose.get(), first.catalogue->fd(), others, -1, 100'000}) {
    Shown shown;  // mappings stay
    const Catalogue::Piece piece = shown.catalogue->allocate(4096).value();
    const std::uint64_t key = shown.catalogue->add(piece.start, 4096, piece.place).value();
    const int right = shown.area.segments[0].fd.exchange(fd, std::memory_order_relaxed);
    EXPECT_EQ(shown.peer->find(key).error().code(), Errc::kProtocol) << fd;
    shown.area.segments[0].fd.store(right, std::memory_order_relaxed);
    shown.area.segments[0].bytes.fetch_add(4096, std::memory_order_relaxed);
    EXPECT_EQ(shown.peer->find(key).error().code(), Errc::kProtocol);
    shown.area.segments[0].bytes.fetch_sub(4096, std::memory_order_relaxed);
    EXPECT_TRUE(shown.peer->find(key));
  }
}

TEST(ShmPeer, NoRowReachesMemoryOutside) {
  Shown shown;
  const Catalogue::Piece piece = shown.catalogue->allocate(4096).value();
  const std::uint64_t key = shown.catalogue->add(piece.start, 4096, piece.place).value();
  MemoryRow& row = shown.row_of(key);
  ASSERT_TRUE(shown.peer->find(key));
  const std::byte* const begin = piece.start - piece.place.offset;
  const std::byte* const end = begin + shown.area.segments[0].bytes.load(std::memory_order_relaxed);
  std::uint32_t found = 0;
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    loop::Random random(seed);
    const auto any = [&] { return random.next() >> random.below(64); };
    row.base.store(any(), std::memory_order_relaxed);
    row.bytes.store(any(), std::memory_order_relaxed);
    row.place.store(random.one_in(4) ? any() : Place{1, any() % (4u << 20)}.word(),
                    std::memory_order_relaxed);
    auto region = shown.peer->find(key);
    if (!region) continue;
    const net::RemoteMemory to{random.one_in(2) ? row.base.load(std::memory_order_relaxed) : any(),
                               key};
    const std::uint64_t bytes =
        random.one_in(2) ? row.bytes.load(std::memory_order_relaxed) : any();
    if (!region->holds(to, bytes)) continue;
    const std::byte* const at = region->at(to);
    if (at == nullptr) continue;
    ++found;
    ASSERT_GE(at, begin);
    ASSERT_LE(at, end);
    ASSERT_LE(bytes, static_cast<std::uint64_t>(end - at));
  }
  EXPECT_GT(found, 100u);
}

// --- offers -------------------------------------------------------------------------------------

TEST(ShmOffer, OnlyTheProcessThatItNamesIsOpened) {
  Shown shown;
  const auto changed = [&](auto&& change) {
    NetworkOffer offer = shown.offer();
    change(offer);
    return Peer::open(offer, shown.own).error();
  };
  constexpr Status kElsewhere{Errc::kUnreachable, EXDEV};
  EXPECT_TRUE(changed([](NetworkOffer&) {}).ok());
  EXPECT_EQ(changed([](NetworkOffer& o) { ++o.identity.host; }), kElsewhere);
  EXPECT_EQ(changed([](NetworkOffer& o) { ++o.identity.namespace_; }), kElsewhere);
  EXPECT_EQ(changed([](NetworkOffer& o) { ++o.identity.start; }).code(), Errc::kPeerDown);
  EXPECT_EQ(changed([](NetworkOffer& o) { o.identity.process = 1 << 30; }).code(), Errc::kPeerDown);
  EXPECT_EQ(changed([](NetworkOffer& o) { o.identity.process = 0; }), Status(Errc::kProtocol));
  EXPECT_EQ(changed([](NetworkOffer& o) { ++o.nonce; }), Status(Errc::kProtocol));
  EXPECT_EQ(changed([](NetworkOffer& o) { o.catalogue_fd = -1; }), Status(Errc::kProtocol));
  EXPECT_EQ(changed([](NetworkOffer& o) { o.catalogue_fd = 0; }).code(), Errc::kProtocol);
}

TEST(ShmOffer, ThatOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give a file away";
  Shown shown;
  ASSERT_EQ(::fchown(shown.catalogue->fd(), 1, 1), 0);
  EXPECT_EQ(Peer::open(shown.offer(), shown.own).error(), Status(Errc::kForeignUser));
}

TEST(ShmOffer, AQueueThatIsNoneIsRefused) {
  Shown shown;
  const Catalogue::Piece piece = shown.catalogue->allocate(sizeof(QueueArea)).value();
  EXPECT_TRUE(shown.peer->queue(piece.place));
  Place place = piece.place;
  place.offset += 8;
  EXPECT_EQ(shown.peer->queue(place).error(), Status(Errc::kProtocol));
  place.offset = (2 << 20) - 4096;  // it would go beyond the end
  EXPECT_EQ(shown.peer->queue(place).error(), Status(Errc::kProtocol));
  EXPECT_EQ(shown.peer->queue({}).error(), Status(Errc::kProtocol));
}

// --- endpoints of one process -------------------------------------------------------------------

std::unique_ptr<net::Fabric> open_shm() {
  std::string reason;
  auto fabric = open_network({}, &reason);
  EXPECT_TRUE(fabric) << reason;
  return std::move(fabric).value();
}

TEST(ShmNetwork, AnEndpointMayBeConnectedToItself) {
  const auto fabric = open_shm();
  net::Side side;
  side.open(*fabric);
  ASSERT_TRUE(side.link->connect(side.link->offer()).ok());
  net::Sent sent;
  side.fill("what goes round");
  EXPECT_EQ(side.link->write_immediate(side.to(side, 0, 100, 15), 5, sent).value(),
            net::Post::done);
  EXPECT_EQ(side.poll(), 1u);
  EXPECT_EQ(side.text(100, 15), "what goes round");
  EXPECT_EQ(side.ear.heard, std::vector{5u});
}

// All posts are complete at once, and none of them completes a second time.
TEST(ShmNetwork, WritesAndReadsAreChecked) {
  const auto first = open_shm(), second = open_shm();
  net::Pair pair(*first, *second);
  net::Sent sent;
  pair.a.fill("abc");
  EXPECT_EQ(pair.a.link->write(pair.a.to(pair.b, 0, 8, 3), sent).value(), net::Post::done);
  EXPECT_EQ(pair.b.text(8, 3), "abc");
  EXPECT_EQ(pair.a.link->read(pair.a.to(pair.b, 100, 8, 3), sent).value(), net::Post::done);
  EXPECT_EQ(pair.a.text(100, 3), "abc");
  EXPECT_EQ(pair.a.link->write_small_immediate({}, {}, 9, sent).value(), net::Post::done);
  EXPECT_EQ(pair.b.poll(), 1u);
  EXPECT_EQ(
      pair.a.link->write_small_immediate(net::bytes_of("x"), pair.b.at(net::kSideBytes), 10, sent)
          .error(),
      Status(Errc::kTransfer, EFAULT));
  net::RemoteMemory unknown = pair.b.at(0);
  unknown.key += std::uint64_t{1} << 40;  // a generation that there is not yet
  EXPECT_EQ(pair.a.link->write_small(net::bytes_of("x"), unknown, sent).error(),
            Status(Errc::kTransfer, EACCES));
  EXPECT_TRUE(pair.a.link->failure().ok());
  EXPECT_EQ(pair.a.link->write(pair.a.to(pair.b, 0, 8, 3), sent).value(), net::Post::done);
  EXPECT_EQ(pair.b.poll(), 0u);
  EXPECT_EQ(sent.times, 0u);
}

TEST(ShmNetwork, PostsToAnEndpointThatIsClosedFail) {
  const auto first = open_shm(), second = open_shm();
  net::Pair pair(*first, *second);
  pair.b.link.reset();
  pair.b.endpoint.reset();
  net::Sent sent;
  EXPECT_EQ(pair.a.link->write_small_immediate({}, {}, 1, sent).error().code(), Errc::kPeerDown);
  EXPECT_EQ(pair.a.link->probe(sent).error().code(), Errc::kPeerDown);
  net::Side other;  // in the same place
  other.open(*second);
  EXPECT_EQ(other.poll(), 0u);
}

// Also a record that comes after the endpoint was busy for long.
TEST(ShmNetwork, EachPollFindsAllArrivals) {
  const auto first = open_shm(), second = open_shm();
  net::Pair pair(*first, *second);
  net::Sent sent;
  for (std::uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(pair.a.link->write_small_immediate({}, {}, i, sent));
    EXPECT_EQ(pair.b.endpoint->poll(64).value(), 1u) << i;
  }
  // relaxed: a hint
  EXPECT_EQ(pair.b.ear.pause.load(std::memory_order_relaxed), net::Receiver::Pause::little_came);
}

TEST(ShmNetwork, APollOfFewFindsArrivals) {
  const auto first = open_shm(), second = open_shm();
  net::Pair pair(*first, *second);
  net::Sent sent;
  for (std::uint32_t i = 0; i < 3; ++i)
    ASSERT_TRUE(pair.a.link->write_small_immediate({}, {}, i, sent));
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(pair.b.poll(1), 1u);
  EXPECT_EQ(pair.b.ear.heard, (std::vector{0u, 1u, 2u}));
}

/// So many descriptors are left, until it ends.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t left) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = std::min<rlim_t>(now.rlim_cur, 256);
    ::setrlimit(RLIMIT_NOFILE, &now);
    for (int fd = 0; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
      taken_.emplace_back(fd);
    taken_.resize(taken_.size() - left);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<UniqueFd> taken_;
};

TEST(ShmNetwork, WantOfDescriptorsEndsNoPeer) {
  const auto first = open_shm(), second = open_shm();
  net::Side a, b;
  a.open(*first);
  b.open(*second);
  for (std::size_t left = 0; left < 3; ++left) {
    const FewDescriptors few(left);
    EXPECT_EQ(a.link->connect(b.link->offer()).code(), Errc::kUnreachable) << left;
  }
  ASSERT_TRUE(a.link->connect(b.link->offer()).ok());
  // In a segment that is not mapped yet.
  const auto memory = std::move(second->allocate_memory(4u << 20).value());
  const net::RemoteMemory place = memory->remote();  // now: sanitizers need descriptors
  const std::uint64_t word = 5;
  const auto bytes = std::as_bytes(std::span(&word, 1));
  net::Sent sent;
  {
    const FewDescriptors none(0);
    EXPECT_EQ(a.link->write_small(bytes, place, sent).value(), net::Post::retry);
  }
  EXPECT_EQ(a.link->write_small(bytes, place, sent).value(), net::Post::done);
  EXPECT_EQ(std::memcmp(memory->start(), &word, sizeof word), 0);
}

TEST(ShmNetwork, ImmediatesAreReserved) {
  const auto fabric = open_shm();
  net::Side side;
  side.open(*fabric);
  const std::uint32_t most = fabric->limits().immediates_max;
  EXPECT_LT(most, QueueArea::kSlots);
  EXPECT_TRUE(side.endpoint->reserve_immediates(most).ok());
  EXPECT_EQ(side.endpoint->reserve_immediates(1).code(), Errc::kNoMemory);
  side.endpoint->release_immediates(2);
  EXPECT_TRUE(side.endpoint->reserve_immediates(2).ok());
}

TEST(ShmNetwork, WordsAreStoredWhole) {
  const auto first = open_shm(), second = open_shm();
  net::Pair pair(*first, *second);
  auto memory = second->allocate_memory(64);
  ASSERT_TRUE(memory);
  net::Sent sent;
  const std::uint64_t word = 0x0102030405060708;
  EXPECT_EQ(pair.a.link->write_small(std::as_bytes(std::span(&word, 1)), (*memory)->remote(), sent)
                .value(),
            net::Post::done);
  EXPECT_EQ(*reinterpret_cast<const std::uint64_t*>((*memory)->start()), word);
  net::RemoteMemory behind = (*memory)->remote();
  behind.address += 64;
  EXPECT_FALSE(pair.a.link->write_small(net::bytes_of("x"), behind, sent));
}

}  // namespace
}  // namespace larklane::shm
