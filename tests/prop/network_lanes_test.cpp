// Several lanes between two processes: threads on different ones don't meet, and no operation is
// stranded on a lane that no thread polls. No helper here: only threads in calls of the program
// make progress.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sched.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/loop/fabric.hpp"
#include "network_side.hpp"

namespace larklane::part {
namespace {

constexpr std::int32_t kPartitions = 4;
constexpr std::uint64_t kBytes = 256;  // of a partition
constexpr std::chrono::seconds kPatience{240};
constexpr vci::Mapping kSpread = vci::Mapping::spread;

struct Channel {
  std::vector<std::byte> from = std::vector<std::byte>(kPartitions * kBytes);
  std::vector<std::byte> to = std::vector<std::byte>(kPartitions * kBytes);
  SendRequest* send = nullptr;
  RecvRequest* recv = nullptr;
};

loop::Fabric::Options network(bool is_manual) {
  loop::Fabric::Options options;
  options.limits.is_progress_manual = is_manual;
  return options;
}

/// Two processes with as many lanes.
class Processes {
 public:
  Processes(vci::VciPool::Options lanes, bool is_manual) : wire_(network(is_manual)) {
    for (int p = 0; p < 2; ++p)
      sides_[p] =
          std::make_unique<Side>(wire_.for_process(), lanes, "process " + std::to_string(1 - p));
  }
  ~Processes() {
    for (auto& side : sides_) side->network->settle();
    for (auto& side : sides_) side->network.reset();
  }

  /// From process `from` to the other.
  std::unique_ptr<Channel> connect(int from) {
    auto channel = std::make_unique<Channel>();
    send_init(from, *channel);
    recv_init(1 - from, *channel);
    ++tag_;
    deliver();
    return channel;
  }
  void send_init(int process, Channel& channel) {
    Side& side = *sides_[process];
    channel.send = side.network->send_init(args(channel.from), side.state, {0, 1, 2, 3}).value();
  }
  void recv_init(int process, Channel& channel) {
    Side& side = *sides_[process];
    channel.recv = side.network->recv_init(args(channel.to), side.state).value();
  }
  void free(int from, Channel& channel) {
    free(from, *channel.send);
    free(1 - from, *channel.recv);
  }
  void free(int process, Request& request) {
    EXPECT_TRUE(sides_[process]->network->free(&request).ok());
  }
  void deliver() {
    while (sides_[0]->deliver_to(*sides_[1]) || sides_[1]->deliver_to(*sides_[0])) {
    }
  }
  /// A turn of each side's lane, as the helpers take them.
  void turn(std::uint32_t lane) {
    for (auto& side : sides_) (void)side->network->lanes().at(lane).value()->progress();
  }
  std::vector<vci::VciCounts> counts(int process) {
    std::vector<vci::VciCounts> all;
    sides_[process]->network->lanes().for_each(
        [&](vci::Vci& lane) { all.push_back(lane.counts()); });
    return all;
  }

 private:
  InitArgs args(std::vector<std::byte>& buffer) const {
    return {{1, 2}, 0, tag_, "", buffer.data(), kPartitions, kBytes, bytes_, ""};
  }

  loop::Fabric wire_;
  std::unique_ptr<Side> sides_[2];
  std::int32_t tag_ = 0;
  const std::shared_ptr<const Typemap> bytes_ =
      std::make_shared<const Typemap>(Typemap::contiguous(1));
};

/// @return was it in time?
template <class Idle>
bool wait(Request& request, Idle&& idle) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (request.poll() == Completion::pending) {
    idle();
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::sched_yield();
  }
  request.finish();
  return true;
}
bool wait(Request& request) {
  return wait(request, [] {});
}

TEST(NetworkLanes, EachOfTwoThreadsDrivesALaneAndTheyNeverMeet) {
  Processes both({2, kSpread, 1'000'000}, false);
  std::unique_ptr<Channel> channels[] = {both.connect(0), both.connect(0)};
  std::vector<std::thread> threads;
  for (std::uint32_t lane = 0; lane < 2; ++lane)
    threads.emplace_back([&both, &channel = channels[lane], lane] {
      const auto turn = [&] { both.turn(lane); };
      for (int round = 1; round <= 200; ++round) {
        ASSERT_TRUE(channel->recv->start().ok() && channel->send->start().ok());
        for (std::byte& byte : channel->from) byte = std::byte(round);
        ASSERT_TRUE(channel->send->pready(0, kPartitions).ok());
        ASSERT_TRUE(wait(*channel->recv, turn) && wait(*channel->send, turn));
        ASSERT_EQ(channel->from, channel->to);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int process = 0; process < 2; ++process) {
    const auto counts = both.counts(process);
    ASSERT_EQ(counts.size(), 2u);
    for (const vci::VciCounts& lane : counts) {
      EXPECT_GE(lane.posts, 200u);
      EXPECT_EQ(lane.contended, 0u);
    }
  }
  for (auto& channel : channels) both.free(0, *channel);
}

TEST(NetworkLanes, AFreedChannelsLaneIsTheNextOnes) {
  Processes both({2, kSpread, 256}, false);
  const auto posts = [&](std::size_t lane) { return both.counts(0).at(lane).posts; };
  auto first = both.connect(0), second = both.connect(0);
  both.free(0, *second);
  both.deliver();
  auto third = both.connect(0);
  const std::uint64_t of_first = posts(0), of_second = posts(1);
  ASSERT_TRUE(third->recv->start().ok() && third->send->start().ok());
  ASSERT_TRUE(third->send->pready(0, kPartitions).ok());
  const auto turn = [&] { both.turn(1); };
  ASSERT_TRUE(wait(*third->recv, turn) && wait(*third->send, turn));
  EXPECT_EQ(posts(0), of_first);
  EXPECT_GT(posts(1), of_second);
  both.free(0, *first);
  both.free(0, *third);
}

// The receiver's process gives back the channel's resources, before there is a receive.
TEST(NetworkLanes, AFreedSendWithoutAReceiveTakesNoMemory) {
  constexpr int kTimes = 2'000;
  Processes both({2, kSpread, 256}, false);
  Channel channel;
  const auto make_and_free = [&] {
    both.send_init(0, channel);
    both.free(0, *channel.send);
    both.deliver();
  };
  for (int i = 0; i < kTimes; ++i) make_and_free();
  const auto before = mallinfo2().uordblks;
  for (int i = 0; i < kTimes; ++i) make_and_free();
  EXPECT_EQ(mallinfo2().uordblks, before);
  both.recv_init(1, channel);
  EXPECT_EQ(channel.recv->start().code(), Errc::kPeerFreed);
  both.free(1, *channel.recv);
  for (int i = 1; i < 2 * kTimes; ++i) {
    both.recv_init(1, channel);
    both.free(1, *channel.recv);
  }
  both.send_init(0, channel);  // the receive that is next is its own
  both.recv_init(1, channel);
  both.deliver();
  ASSERT_TRUE(channel.recv->start().ok() && channel.send->start().ok());
  channel.from[0] = std::byte{7};
  ASSERT_TRUE(channel.send->pready(0, kPartitions).ok());
  const auto turn = [&] { both.turn(0); };
  ASSERT_TRUE(wait(*channel.recv, turn) && wait(*channel.send, turn));
  EXPECT_EQ(channel.from, channel.to);
  both.free(0, channel);
}

// Zambre et al., figure 9, left: process 1 waits for its second channel, while process 0 waits for
// the end of the first one. No thread of process 1 polls the first one's lane.
TEST(NetworkLanes, AFirstRoundEndsWhileItsReceiverWaitsForTheSecond) {
  Processes both({2, kSpread, 64}, true);
  auto first = both.connect(0), second = both.connect(0);
  bool sent = false;
  std::thread sender([&] {
    for (Channel* channel : {first.get(), second.get()}) {
      ASSERT_TRUE(channel->send->start().ok());
      ASSERT_TRUE(channel->send->pready(0, kPartitions).ok());
      ASSERT_TRUE(wait(*channel->send)) << "stranded";
    }
    sent = true;
  });
  ASSERT_TRUE(first->recv->start().ok() && second->recv->start().ok());
  EXPECT_TRUE(wait(*second->recv)) << "stranded";
  EXPECT_TRUE(wait(*first->recv));
  sender.join();
  EXPECT_TRUE(sent);
  ASSERT_EQ(both.counts(1).size(), 2u);
  both.free(0, *first);
  both.free(0, *second);
}

// Right: both pull from each other. Process 1 waits for its second channel only, and process 0's
// pulls of the first one need process 1's lane.
TEST(NetworkLanes, PullsEndWhileTheOtherSideWaitsOnAnotherLane) {
  Processes both({2, kSpread, 64}, true);
  std::unique_ptr<Channel> to_0[] = {both.connect(1), both.connect(1)};
  std::unique_ptr<Channel> to_1[] = {both.connect(0), both.connect(0)};
  for (auto* channels : {&to_0, &to_1})
    for (auto& channel : *channels) {
      ASSERT_TRUE(channel->send->start().ok());
      ASSERT_TRUE(channel->send->pready(0, kPartitions).ok());  // without credit: notices
    }
  std::thread process_0([&] {
    ASSERT_TRUE(to_0[0]->recv->start().ok() && to_0[1]->recv->start().ok());
    EXPECT_TRUE(wait(*to_0[0]->recv)) << "stranded";
    EXPECT_TRUE(wait(*to_0[1]->recv)) << "stranded";
    EXPECT_TRUE(wait(*to_1[0]->send) && wait(*to_1[1]->send)) << "stranded";
  });
  ASSERT_TRUE(to_1[0]->recv->start().ok() && to_1[1]->recv->start().ok());
  EXPECT_TRUE(wait(*to_1[1]->recv)) << "stranded";
  EXPECT_TRUE(wait(*to_0[1]->send)) << "stranded";
  EXPECT_TRUE(wait(*to_0[0]->send) && wait(*to_1[0]->recv)) << "stranded";
  process_0.join();
  for (auto& channel : to_0) both.free(1, *channel);
  for (auto& channel : to_1) both.free(0, *channel);
}

}  // namespace
}  // namespace larklane::part
