// Provider shm within one process, where the thread sanitizer sees both sides: threads that post on
// the same pairs, many senders to one endpoint, memory that comes and goes while peers look it up.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "net/shm/network_catalogue.hpp"
#include "net/shm/network_fabric.hpp"
#include "net/shm/network_peer.hpp"
#include "unit/msg_packet_pair.hpp"
#include "unit/net_pair.hpp"

namespace larklane::shm {
namespace {

constexpr std::uint64_t kTriesMax = 50'000'000;  // some minutes

std::unique_ptr<net::Fabric> open_shm() {
  std::string reason;
  auto fabric = open_network({}, &reason);
  EXPECT_TRUE(fabric) << reason;
  return std::move(fabric).value();
}

/// The records that one end gets from the threads of the other. Plain members: callbacks have the
/// lane's lock.
struct Hearer {
  static constexpr std::uint32_t kThreads = 2, kEach = 1500;

  void hear(const msg::PacketHeader& header, std::span<const std::byte> payload) {
    msg::expect_intact(header, payload);
    ASSERT_LT(header[2], kThreads);
    ASSERT_EQ(header[0], next[header[2]]) << "thread " << header[2];
    ++next[header[2]];
    count.fetch_add(1, std::memory_order_release);  // pairs with is_over()'s acquire
  }
  bool is_over() const {
    return count.load(std::memory_order_acquire) == kThreads * kEach;  // pairs with hear()
  }
  std::uint32_t next[kThreads] = {};
  std::atomic<std::uint32_t> count{0};
};

TEST(ShmRace, ThreadsOnTheSamePairBothWays) {
  const auto fabric_a = open_shm(), fabric_b = open_shm();
  msg::PacketSide sides[] = {{*fabric_a, {16, 4}}, {*fabric_b, {16, 4}}};
  msg::PacketEnd a(sides[0], 32), b(sides[1], 32);
  a.connect(b);
  b.connect(a);
  Hearer hearers[2];
  msg::PacketEnd* const ends[] = {&a, &b};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    ends[i]->react = [&hearers, i](const msg::PacketHeader& header,
                                   std::span<const std::byte> payload) {
      hearers[i].hear(header, payload);
    };
  for (int i = 0; i < 2; ++i)
    for (std::uint32_t t = 0; t < Hearer::kThreads; ++t)
      threads.emplace_back([&, i, t] {
        loop::Random random(10 * static_cast<std::uint64_t>(i) + t);  // LARKLANE_SEED
        msg::PacketEnd& end = *ends[i];
        for (std::uint32_t number = 0; number < Hearer::kEach; ++number) {
          const auto bytes =
              static_cast<std::uint32_t>(random.below(end.link->payload_bytes_max() + 1));
          const msg::PacketHeader header = msg::header_of(number, bytes, t);
          for (std::uint64_t tries = 0; tries < kTriesMax; ++tries) {
            auto answer = end.link->post(header, msg::payload_of(header));
            ASSERT_TRUE(answer);
            if (*answer == net::Post::done) break;
            if (end.side.vci->progress() == 0) std::this_thread::yield();
          }
        }
        for (std::uint64_t tries = 0; tries < kTriesMax && !hearers[i].is_over(); ++tries)
          if (end.side.vci->progress() == 0) std::this_thread::yield();
      });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(hearers[0].is_over() && hearers[1].is_over());
  for (msg::PacketSide& side : sides) side.vci->drain();
  EXPECT_TRUE(a.link->is_quiet() && b.link->is_quiet());
  a.link.reset();
  b.link.reset();
}

// Each sender has an endpoint of its own; the immediates of one sender keep their order in the
// queue.
TEST(ShmRace, ManySendersToOneEndpoint) {
  constexpr std::uint32_t kSenders = 3, kEach = 20'000;
  const auto fabric = open_shm(), others = open_shm();
  net::Side receiver;
  receiver.open(*fabric);
  std::vector<std::thread> threads;
  for (std::uint32_t s = 0; s < kSenders; ++s)
    threads.emplace_back([&, s] {
      net::Side side;
      side.open(*others);
      ASSERT_TRUE(side.link->connect(receiver.link->offer()).ok());
      net::Sent sent;
      for (std::uint32_t i = 0; i < kEach; ++i)
        for (std::uint64_t tries = 0; tries < kTriesMax; ++tries) {
          auto answer = side.link->write_small_immediate({}, {}, s << 24 | i, sent);
          ASSERT_TRUE(answer);
          if (*answer == net::Post::done) break;
        }
    });
  std::uint32_t next[kSenders] = {};
  receiver.ear.react = [&](std::uint32_t immediate) {
    ASSERT_LT(immediate >> 24, kSenders);
    ASSERT_EQ(immediate & 0xff'ffff, next[immediate >> 24]++);
  };
  for (std::uint64_t tries = 0; tries < kTriesMax && receiver.ear.heard.size() < kSenders * kEach;
       ++tries)
    if (receiver.poll(64) == 0) std::this_thread::yield();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(receiver.ear.heard.size(), kSenders * kEach);
}

// A key leads to the memory that it was given for, or nowhere.
TEST(ShmRace, MemoryComesAndGoesWhileItIsLookedUp) {
  const auto own = std::move(ProcessIdentity::own().value());
  const auto catalogue = std::move(Catalogue::create().value());
  NetworkOffer offer{};
  offer.identity = own;
  offer.nonce = catalogue->nonce();
  offer.catalogue_fd = catalogue->fd();
  const auto peer = std::move(Peer::open(offer, own).value());
  static std::byte memory[64];
  std::atomic<std::uint64_t> key{0};
  std::atomic<bool> is_over{false};
  std::thread owner([&] {
    for (std::uint64_t i = 1; i <= 5000; ++i) {
      const std::uint64_t bytes = i % 64;
      const std::uint64_t added = catalogue->add(memory + bytes, bytes).value();
      key.store(added, std::memory_order_release);  // pairs with the acquire below
      catalogue->remove(added);
    }
    is_over.store(true, std::memory_order_release);  // pairs with the acquire below
  });
  while (!is_over.load(std::memory_order_acquire)) {
    const std::uint64_t now = key.load(std::memory_order_acquire);
    if (auto region = peer->find(now)) {
      // Base and length are of one registration.
      for (std::uint64_t bytes = 0; bytes < 64; ++bytes) {
        const net::RemoteMemory at{reinterpret_cast<std::uintptr_t>(memory + bytes), now};
        ASSERT_FALSE(region->holds(at, bytes) && region->holds(at, bytes + 1));
      }
    }
  }
  owner.join();
  EXPECT_FALSE(peer->find(key.load(std::memory_order_relaxed)));  // relaxed: after the join
}

}  // namespace
}  // namespace larklane::shm
