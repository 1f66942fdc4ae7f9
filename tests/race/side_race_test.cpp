// Both sides of one channel in one piece of memory, so that a thread sanitizer sees the accesses of
// two processes.

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "part/protocol/side.hpp"

namespace larklane::part {
namespace {

constexpr std::uint32_t kPartitions = 64;

struct Block {
  Block() : shape{Mode::direct, kPartitions, kPartitions, 0, 0, 0, 16} {
    const LayoutSize most = LayoutSize::most(kPartitions, kPartitions);
    shape.words_max = most.words;
    shape.roots_max = most.roots;
    const std::uint64_t bytes = BlockOffsets::of(shape).end;
    memory.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kLineBytes})));
    std::memset(memory.get(), 0, bytes);
    view = {memory.get(), shape};
    view.construct(shape, 1);
  }
  struct Free {
    void operator()(std::byte* base) const {
      ::operator delete (base, std::align_val_t{kLineBytes});
    }
  };
  BlockShape shape;
  std::unique_ptr<std::byte, Free> memory;
  BlockView<RealPlatform> view;
};

/// Moves nothing, counts.
struct Mover {
  const BlockView<RealPlatform>& view;
  std::uint64_t round;
  std::atomic<std::uint64_t>& moved;
  void move(Run run) {
    moved.fetch_add(run.count, std::memory_order_relaxed);
    publish_moved(view, round, run);
  }
  void fill(std::byte*, std::uint64_t, std::uint64_t) {}
  void empty(const std::byte*, std::uint64_t, std::uint64_t) {}
};

// The receiver's Start came before the match, so its helper opens the first round: it may still be
// in there when the program is some rounds on, and the groups are others.
TEST(SideRace, AHelperThatIsSlowToLeaveTheFirstOpenSeesItsOwnGroups) {
  const std::vector<std::uint32_t> few{0, 32}, many{0, 17, 34, 51}, one{0};
  for (int turn = 0; turn < 50; ++turn) {
    Block block;
    std::atomic<std::uint64_t> moved{0};
    SendSide<RealPlatform> send(block.view, block.shape);
    ASSERT_TRUE(send.choose(turn % 2 == 0 ? few : one).ok());
    RecvSide<RealPlatform> receive(block.view, block.shape, kPartitions);
    send.start(1);
    std::thread helper([&] {
      Mover mover{block.view, 1, moved};
      EXPECT_TRUE(receive.open(1, mover).ok());
    });
    for (std::uint64_t round = 1; round <= 7; ++round) {
      Mover mover{block.view, round, moved};
      if (round > 1) {
        ASSERT_TRUE(send.choose(round % 4 < 2 ? many : few).ok());
        send.start(round);
        ASSERT_TRUE(receive.open(round, mover).ok());
      }
      for (std::uint32_t p = 0; p < kPartitions; ++p)
        ASSERT_TRUE(send.mark(round, {p, 1}, mover).ok());
      while (!send.complete(round) || !receive.complete(round, mover)) ::sched_yield();
      ASSERT_EQ(moved.load(std::memory_order_relaxed), round * kPartitions);
    }
    helper.join();
  }
}

TEST(SideRace, PlansThatMakeNoSenseAreRefused) {
  std::atomic<std::uint64_t> moved{0};
  const std::vector<std::uint32_t> all{0};
  const auto opens = [&](auto&& spoil) {
    Block block;
    SendSide<RealPlatform> send(block.view, block.shape);
    EXPECT_TRUE(send.choose(all).ok());
    send.start(1);
    spoil(block.view);
    RecvSide<RealPlatform> receive(block.view, block.shape, 1);
    Mover mover{block.view, 1, moved};
    return receive.open(1, mover);
  };
  EXPECT_TRUE(opens([](auto&) {}).ok());
  EXPECT_EQ(opens([](auto& view) { view.plan(1) = {}; }).code(), Errc::kProtocol)
      << "never written";
  EXPECT_EQ(opens([](auto& view) { view.plan(1).group_count = 0; }).code(), Errc::kProtocol);
  EXPECT_EQ(opens([](auto& view) { view.plan(1).group_count = 1u << 31; }).code(), Errc::kProtocol);
  EXPECT_EQ(opens([](auto& view) { view.boundaries(1)[0] = 1; }).code(), Errc::kProtocol);
  EXPECT_EQ(moved.load(std::memory_order_relaxed), 0u);
}

// The sender never follows values that the other process writes there.
TEST(SideRace, TheSenderKeepsItsOwnPlans) {
  Block block;
  std::atomic<std::uint64_t> moved{0};
  SendSide<RealPlatform> send(block.view, block.shape);
  ASSERT_TRUE(send.choose(std::vector<std::uint32_t>{0}).ok());
  block.view.plan(2).number = 1;
  send.start(1);
  send.start(2);
  Mover mover{block.view, 2, moved};
  EXPECT_TRUE(send.mark(2, {3, 2}, mover).ok());
}

}  // namespace
}  // namespace larklane::part
