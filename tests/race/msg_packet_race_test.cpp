// Threads that post on the same pairs of one lane, while others make progress on both sides.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "msg/packet/packet_link.hpp"
#include "net/loop/random.hpp"
#include "net/shm/network_fabric.hpp"
#include "prop/msg_seeds.hpp"
#include "unit/msg_packet_pair.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint32_t kThreads = 3, kEach = 250, kPairs = 2;
constexpr std::uint64_t kTriesMax = 50'000'000;  // some minutes

/// Receives records of several threads. Plain members: callbacks have the lane's lock.
struct Hearer {
  void hear(const PacketHeader& header, std::span<const std::byte> payload) {
    expect_intact(header, payload);
    ASSERT_LT(header[2], kThreads);
    ASSERT_EQ(header[0], next[header[2]]) << "thread " << header[2];
    ++next[header[2]];
    count.fetch_add(1, std::memory_order_release);  // pairs with the waiting thread's acquire
  }
  std::uint32_t next[kThreads] = {};
  std::atomic<std::uint32_t> count{0};
};

/// As a thread of a program does: again after some progress.
void post(PacketEnd& end, const PacketHeader& header, bool is_assembled, bool more_follow) {
  for (std::uint64_t tries = 0; tries < kTriesMax; ++tries) {
    Result<net::Post> answer = net::Post::retry;
    if (!is_assembled) {
      answer = end.link->post(header, payload_of(header), more_follow);
    } else if (Packet* const packet = end.side.lane->take_packet()) {
      fill_payload(packet->payload().first(header[1]), header);
      answer = end.link->post(*packet, header, header[1]);
      if (answer && *answer == net::Post::retry) end.side.lane->give_back(*packet);
    }
    ASSERT_TRUE(answer) << errc_name(answer.error().code());
    if (*answer == net::Post::done) return;
    (void)end.side.vci->progress();
    std::this_thread::yield();
  }
  ADD_FAILURE() << "no room for ever";
}

/// @param does_sender_turn  false: no thread makes a turn of the sender's lane, but for a post that
/// has to be made again; one way only
/// @param first_cells  not 0: the rings of the posting sides grow
void exchange(std::uint64_t seed, PacketLane::Options lane, std::uint32_t cells, bool both_ways,
              bool does_sender_turn = true, std::uint32_t first_cells = 0) {
  SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
  loop::Fabric::Options network;
  network.seed = seed;
  network.limits.small_bytes_max = 32;
  network.limits.first_word_last_bytes_max = seed % 2 == 0 ? UINT64_MAX : 0;
  network.limits.has_wide_immediates = first_cells == 0 && seed % 4 < 2;
  PacketPair pair(network, lane, cells, cells, first_cells);
  PacketEnd c(pair.sides[0], cells, first_cells), d(pair.sides[1], cells, first_cells);
  c.connect(d);
  d.connect(c);
  PacketEnd* const from[2][kPairs] = {{&pair.a, &c}, {&pair.b, &d}};
  Hearer hearers[2][kPairs];
  for (std::uint32_t side = 0; side < 2; ++side)
    for (std::uint32_t p = 0; p < kPairs; ++p)
      from[side][p]->react = [&, side, p](const PacketHeader& header,
                                          std::span<const std::byte> payload) {
        hearers[side][p].hear(header, payload);
      };
  const std::uint32_t speaking = both_ways ? 2 : 1;
  const auto is_over = [&] {
    for (std::uint32_t side = 0; side < speaking; ++side)
      for (const Hearer& hearer : hearers[1 - side])
        // acquire: of the received records
        if (hearer.count.load(std::memory_order_acquire) != kThreads * kEach) return false;
    return true;
  };
  const auto has_failed = [&] {
    for (const auto& ends : from)
      for (const PacketEnd* const end : ends)
        if (!end->link->failure().ok()) return true;
    return false;
  };
  std::vector<std::thread> threads;
  for (std::uint32_t side = 0; side < speaking; ++side)
    for (std::uint32_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, side, t] {
        loop::Random random(seed * 100 + side * 10 + t);
        for (std::uint32_t i = 0; i < kEach; ++i)
          for (std::uint32_t p = 0; p < kPairs; ++p) {
            PacketEnd& end = *from[side][p];
            const auto bytes =
                static_cast<std::uint32_t>(random.below(end.link->payload_bytes_max() + 1));
            // Not of the last: nothing follows.
            const bool more_follow = i + 1 < kEach && random.one_in(2);
            post(end, header_of(i, bytes, t), random.one_in(2), more_follow);
          }
      });
  for (PacketSide& side : pair.sides)
    if (does_sender_turn || &side != pair.sides)
      threads.emplace_back([&] {
        for (std::uint64_t tries = 0; tries < kTriesMax && !is_over() && !has_failed(); ++tries)
          if (side.vci->progress() == 0) std::this_thread::yield();
      });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(is_over());
  pair.settle();
  EXPECT_TRUE(c.link->is_quiet());
  EXPECT_TRUE(d.link->is_quiet());
  for (std::uint32_t side = 0; side < speaking; ++side)
    for (const PacketEnd* const end : from[side])
      EXPECT_EQ(end->link->has_grown(), first_cells != 0);
  c.link.reset();
  d.link.reset();
}

TEST(PacketRace, ThreadsOnTheSamePairs) {
  for (const std::uint64_t seed : seeds(1, 3)) {
    exchange(seed, {8, 4}, 16, false);
    exchange(seed, {8, 4}, 16, true);
    exchange(seed, {64, 2}, 64, true);
  }
}

// A ring grows between the posts of threads.
TEST(PacketRace, RingsGrow) {
  for (const std::uint64_t seed : seeds(21, 40)) {
    exchange(seed, {64, 4}, 64, false, true, 8);
    exchange(seed, {64, 2}, 16, true, true, 4);
    exchange(seed, {8, 4}, 1024, true, true, 4);
  }
}

// The next post sends the records that wait for others.
TEST(PacketRace, WithoutTurnsOfTheSender) {
  for (const std::uint64_t seed : seeds(5, 10)) exchange(seed, {64, 8}, 1024, false, false);
}

// One posts short records that wait for each other, another one long ones, whose copy lies between
// their positions and their post.
TEST(PacketRace, PositionsThatAreTakenMeanwhile) {
  constexpr std::uint32_t kCount[] = {20'000, 2'000}, kBytes[] = {8, 12'000};
  PacketPair pair({}, {64, 256}, 1024, 1024);
  std::uint32_t next[2] = {};  // callbacks have the lane's lock
  std::atomic<std::uint32_t> heard{0};
  pair.b.react = [&](const PacketHeader& header, std::span<const std::byte> payload) {
    ASSERT_LT(header[2], 2u);
    ASSERT_EQ(header[0], next[header[2]]++) << "thread " << header[2];
    ASSERT_EQ(payload.size(), kBytes[header[2]]);
    for (const std::byte one : {payload.front(), payload.back()})
      ASSERT_EQ(one, static_cast<std::byte>(header[0]));
    heard.fetch_add(1, std::memory_order_release);  // pairs with the waiting thread's acquire
  };
  const auto is_over = [&] {
    return heard.load(std::memory_order_acquire) == kCount[0] + kCount[1] ||
           !pair.a.link->failure().ok() || !pair.b.link->failure().ok() ||
           testing::Test::HasFailure();
  };
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::byte> payload(kBytes[t]);
      for (std::uint32_t i = 0; i < kCount[t] && !is_over();) {
        payload.front() = payload.back() = static_cast<std::byte>(i);
        auto answer = pair.a.link->post({i, 0, t}, payload, t == 0 && i + 1 < kCount[t]);
        if (!answer) break;
        if (*answer == net::Post::done) {
          ++i;
        } else {
          (void)pair.sides[0].vci->progress();
          std::this_thread::yield();
        }
      }
    });
  threads.emplace_back([&] {
    while (!is_over())
      if (pair.sides[1].vci->progress() == 0) std::this_thread::yield();
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(next[0], kCount[0]);
  EXPECT_EQ(next[1], kCount[1]);
}

// Few packets: they go round.
TEST(PacketRace, ThreadsWithFewPackets) {
  exchange(11, {2, 4}, 64, true);
  exchange(12, {1, 1}, 1, true);
}

// A peer dies while threads post: each of them gets the error from a post, the owner once.
TEST(PacketRace, APeerDiesMeanwhile) {
  for (const std::uint64_t seed : seeds(21, 24)) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    loop::Fabric::Options network;
    network.seed = seed;
    PacketPair pair(network, {8, 4});
    pair.b.react = [](const PacketHeader&, std::span<const std::byte>) {};
    std::vector<std::thread> threads;
    std::atomic<std::uint32_t> posting{kThreads};
    for (std::uint32_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (std::uint64_t tries = 0; tries < kTriesMax; ++tries) {
          const PacketHeader header = header_of(0, 100, t);
          if (!pair.a.link->post(header, payload_of(header))) break;
          (void)pair.sides[0].vci->progress();
          if (t == 0 && tries == 100) pair.wire.kill_endpoint(1);
        }
        EXPECT_EQ(pair.a.link->failure(), Status(Errc::kPeerDown));
        posting.fetch_sub(1, std::memory_order_release);  // pairs with the acquire below
      });
    while (posting.load(std::memory_order_acquire) != 0) {
      (void)pair.sides[1].vci->progress();
      std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pair.a.failures, std::vector<Status>{Errc::kPeerDown});
  }
}

/// Threads push on two rings of different lanes. A record of the second ring says how many records
/// of the first one had been pushed before, by any thread: all these can be read by then.
void push_on_two_rings(std::uint32_t cells) {
  constexpr PacketLane::Options kPushing{64, 4, true};
  std::unique_ptr<net::Fabric> fabrics[2];
  for (auto& fabric : fabrics) {
    std::string reason;
    fabric = std::move(shm::open_network({}, &reason)).value();
  }
  PacketSide senders[2]{{*fabrics[0], kPushing}, {*fabrics[0], kPushing}};
  PacketSide receivers[2]{{*fabrics[1], kPushing}, {*fabrics[1], kPushing}};
  PacketEnd first(senders[0], cells), second(senders[1], cells);
  PacketEnd at_first(receivers[0], cells), at_second(receivers[1], cells);
  const auto join = [](PacketEnd& a, PacketEnd& b) {
    a.connect(b);
    b.connect(a);
  };
  join(first, at_first);
  join(second, at_second);
  std::atomic<std::uint32_t> pushed{0}, running{kThreads};
  std::uint32_t seen = 0, told = 0;
  at_first.react = [&](const PacketHeader&, std::span<const std::byte>) { ++seen; };
  at_second.react = [&](const PacketHeader& header, std::span<const std::byte>) {
    told = std::max(told, header[0]);
  };
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (std::uint32_t i = 0; i < 4 * kEach; ++i) {
        post(first, header_of(i, 8), i % 3 == 0, false);
        pushed.fetch_add(1, std::memory_order_acq_rel);  // a thread that reads it knows of the post
        if (i % 2 == 0)
          post(second, header_of(pushed.load(std::memory_order_acquire), 8), false, false);
      }
      running.fetch_sub(1, std::memory_order_acq_rel);  // pairs with the reader
    });
  const auto look = [](PacketSide& side) {
    side.vci->exclusively([&] { ASSERT_TRUE(side.lane->look_at_all_locked()); });
  };
  bool is_last = false;
  while (!is_last) {
    is_last = running.load(std::memory_order_acquire) == 0;
    look(receivers[1]);
    look(receivers[0]);
    ASSERT_GE(seen, told);
    for (PacketSide& side : receivers) (void)side.vci->progress();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen, kThreads * 4 * kEach);
  for (int turns = 0; turns < 4; ++turns)
    for (PacketSide* side : {&senders[0], &senders[1], &receivers[0], &receivers[1]})
      side->vci->drain();
}

TEST(MsgPacketRace, WhatWasPushedBeforeAVisibleRecordIsVisible) {
  for (const std::uint32_t cells : {16u, 64u}) push_on_two_rings(cells);
}

}  // namespace
}  // namespace larklane::msg
