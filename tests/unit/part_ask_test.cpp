// Receivers that ask for partitions before their group is complete.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "part/protocol/side.hpp"

namespace larklane::part {
namespace {

using Runs = std::vector<Run>;
using Firsts = std::vector<std::uint32_t>;

/// One channel of any groups, and the runs that each call moves. Thread safety: single-owner.
class Channel {
 public:
  Channel(std::uint32_t partitions, std::uint32_t recv_partitions, const Firsts& firsts)
      : shape_(shape_of(partitions)),
        memory_(BlockOffsets::of(shape_).end / kLineBytes),
        view_(memory_.data()->bytes, shape_),
        send_(view_, shape_),
        recv_(view_, shape_, recv_partitions) {
    view_.construct(shape_, 1);
    choose(firsts);
  }

  void choose(const Firsts& firsts) { EXPECT_TRUE(send_.choose(firsts).ok()); }
  Runs start() {
    send_.start(++round_);
    return moved([&] { EXPECT_TRUE(recv_.open(round_, *this).ok()); });
  }
  Runs mark(std::uint32_t first, std::uint32_t count = 1) {
    return moved([&] { EXPECT_TRUE(send_.mark(round_, {first, count}, *this).ok()); });
  }
  Runs ask(std::uint32_t partition) { return ask_in(round_, partition); }
  Runs ask_in(std::uint64_t round, std::uint32_t partition) {
    return moved([&] { recv_.ask(round, partition, *this); });
  }
  bool complete() { return send_.complete(round_) && recv_.complete(round_, *this); }

  void move(Run run) {
    runs_.push_back(run);
    publish_moved(view_, round_, run);
  }
  void fill(std::byte*, std::uint64_t, std::uint64_t) {}
  void empty(const std::byte*, std::uint64_t, std::uint64_t) {}

 private:
  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes];
  };
  static BlockShape shape_of(std::uint32_t partitions) {
    const LayoutSize most = LayoutSize::most(partitions, partitions);
    return {Mode::direct, partitions, partitions, most.words, most.roots, 0, 8};
  }
  template <class Call>
  Runs moved(Call&& call) {
    runs_.clear();
    call();
    return runs_;
  }

  const BlockShape shape_;
  std::vector<Line> memory_;
  BlockView<RealPlatform> view_;
  SendSide<RealPlatform> send_;
  RecvSide<RealPlatform> recv_;
  std::uint64_t round_ = 0;
  Runs runs_;
};

TEST(PartAsk, TakesReadyPartitionsAndWaitsForItsGroup) {
  Channel channel(4, 4, {0});
  channel.start();
  EXPECT_EQ(channel.mark(0, 2), Runs{});
  EXPECT_EQ(channel.ask(1), (Runs{{0, 2}}));
  EXPECT_EQ(channel.ask(1), Runs{});
  EXPECT_EQ(channel.mark(3), (Runs{{3, 1}})) << "nothing in the word waits any more";
  EXPECT_EQ(channel.mark(2), (Runs{{2, 1}}));
  EXPECT_TRUE(channel.complete());
  channel.start();
  EXPECT_EQ(channel.mark(0, 3), Runs{}) << "in that round only";
}

TEST(PartAsk, LeavesGroupsAloneUnlessAllThatIsAskedForIsReady) {
  Channel channel(4, 2, {0});
  channel.start();
  EXPECT_EQ(channel.mark(0), Runs{});
  EXPECT_EQ(channel.mark(2), Runs{});
  EXPECT_EQ(channel.ask(0), Runs{});
  EXPECT_EQ(channel.ask(1), Runs{});
  EXPECT_EQ(channel.mark(1), Runs{}) << "the word has not expired";
  EXPECT_EQ(channel.ask(0), (Runs{{0, 3}}));
}

TEST(PartAsk, LeavesOtherGroupsAloneWhereItsOwnIsComplete) {
  Channel channel(4, 4, {0, 2});
  channel.start();
  EXPECT_EQ(channel.mark(0, 2), (Runs{{0, 2}}));
  EXPECT_EQ(channel.mark(2), Runs{});
  EXPECT_EQ(channel.ask(0), Runs{});
  EXPECT_EQ(channel.mark(3), (Runs{{2, 2}}));
}

TEST(PartAsk, TakesTheLeavesItAsksForOutOfALargeGroup) {
  Channel channel(100, 100, {0});
  channel.start();
  EXPECT_EQ(channel.mark(0, 34), Runs{});
  EXPECT_EQ(channel.mark(64, 2), Runs{});
  EXPECT_EQ(channel.ask(33), (Runs{{0, 34}}))
      << "a leaf that is whole, and what is ready of its own";
  EXPECT_EQ(channel.mark(40), (Runs{{40, 1}})) << "of a leaf that was asked for";
  EXPECT_EQ(channel.mark(66, 29), Runs{}) << "of another one";
  EXPECT_EQ(channel.mark(95), (Runs{{64, 32}}));
  EXPECT_EQ(channel.mark(34, 6), (Runs{{34, 6}}));
  EXPECT_EQ(channel.mark(41, 23), (Runs{{41, 23}}));
  EXPECT_EQ(channel.mark(96, 4), (Runs{{96, 4}}));
  EXPECT_TRUE(channel.complete());
}

TEST(PartAsk, HasNoEffectOnARoundThatIsOver) {
  Channel channel(4, 4, {0, 1, 2, 3});
  channel.start();
  channel.mark(0, 4);
  channel.choose({0});
  channel.start();
  channel.mark(0, 4);
  channel.start();
  EXPECT_EQ(channel.mark(0, 2), Runs{});
  EXPECT_EQ(channel.ask_in(1, 0), Runs{});
  EXPECT_EQ(channel.ask_in(2, 0), Runs{});
  EXPECT_EQ(channel.ask_in(5, 0), Runs{}) << "nor on one to come";
  EXPECT_EQ(channel.mark(2, 2), (Runs{{0, 4}}));
}

}  // namespace
}  // namespace larklane::part
