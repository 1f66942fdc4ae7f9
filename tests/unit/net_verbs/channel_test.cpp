// Channels with queue pairs of their own and the paper's immediates (Temucin et al., CLUSTER'23,
// section IV.A): two processes' channels on one device made of memory.

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "device.hpp"
#include "net/immediate.hpp"
#include "net/verbs/fabric.hpp"
#include "part/policy/registry.hpp"
#include "prop/scripted_plane.hpp"
#include "two_sides.hpp"

namespace larklane::part {
namespace {

constexpr std::int32_t kPartitions = 8;

class ChannelTest : public testing::Test {
 protected:
  ChannelTest() {
    set_log_sink(
        [this](LogLevel, std::string_view message) { said_ += std::string(message) + "\n"; });
  }
  ~ChannelTest() override { set_log_sink({}); }

  void open(std::uint32_t senders_queues, std::uint32_t receivers_queues,
            vci::VciPool::Options lanes = {}) {
    for (std::size_t i = 0; i < 2; ++i) {
      net::FabricOptions options;
      options.channel_queues = i == 0 ? senders_queues : receivers_queues;
      std::string reason;
      auto fabric = verbs::Fabric::open(options, &reason);
      ASSERT_TRUE(fabric) << reason;
      names_[i] = (*fabric)->limits().network;
      sides_[i] =
          std::make_unique<Side>(std::move(fabric).value(), lanes, i == 0 ? "receiver" : "sender");
    }
    pairs_before_ = device_.pairs.size();
  }
  /// @param queues  Policy::queues()
  void init(std::int32_t tag = 1, GroupRules rules = {}, std::uint32_t queues = 0) {
    const std::vector<std::uint32_t> groups =
        rules.has_planner ? std::vector<std::uint32_t>{0} : std::vector<std::uint32_t>{0, 2, 4, 6};
    send_ = must(sides_[0]->network->send_init(args_of("receiver", tag, from_, kPartitions),
                                               sides_[0]->state, groups, rules, plans_, queues));
    receive_ = must(
        sides_[1]->network->recv_init(args_of("sender", tag, to_, kPartitions), sides_[1]->state));
    settle();
  }
  void free() {
    EXPECT_TRUE(sides_[0]->network->free(send_).ok() && sides_[1]->network->free(receive_).ok());
    settle();
  }
  void settle() { part::settle(device_, sides_); }
  void start() {
    ++round_;
    std::fill(from_.begin(), from_.end(), static_cast<std::byte>(round_));
    ASSERT_TRUE(receive_->start().ok() && send_->start().ok());
  }
  void end_round() {
    settle();
    ASSERT_EQ(send_->poll(), Completion::complete) << send_->error_text() << said_;
    ASSERT_EQ(receive_->poll(), Completion::complete) << receive_->error_text() << said_;
    send_->finish();
    receive_->finish();
    EXPECT_EQ(from_, to_);
  }
  /// Of those that are posted and not carried out.
  std::uint32_t signalled() const {
    std::uint32_t count = 0;
    for (const auto& [number, pair] : device_.pairs)
      for (const auto& request : pair->requests)
        count += (request.work.send_flags & IBV_SEND_SIGNALED) != 0;
    return count;
  }
  /// Immediates that are posted and not carried out, by queue pair.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> posted() const {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> all;
    for (const auto& [number, pair] : device_.pairs)
      for (const auto& request : pair->requests)
        if (request.work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
          all.emplace_back(number, ntohl(request.work.imm_data));
    return all;
  }

  std::string said_;
  verbs::FakeDevice device_;
  ScriptedPlane plane_;
  const PlanSource plans_{must(make_policy("learned", {.min_bytes = 16 << 10})), &plane_};
  std::vector<std::byte> from_ = std::vector<std::byte>(64);
  std::vector<std::byte> to_ = std::vector<std::byte>(64);
  std::string names_[2];
  std::unique_ptr<Side> sides_[2];
  std::size_t pairs_before_ = 0;
  int round_ = 0;
  SendRequest* send_ = nullptr;
  RecvRequest* receive_ = nullptr;
};

TEST_F(ChannelTest, NeighboursGoByOneQueueAndTheImmediateHasFirstAndCount) {
  open(2, 2);
  init();
  EXPECT_EQ(device_.pairs.size(), pairs_before_ + 2 * 3);
  for (int round = 0; round < 3; ++round) {  // from the second on the posts are prepared
    start();
    settle();
    for (std::int32_t group = 0; group < 4; ++group) ASSERT_TRUE(send_->pready(2 * group, 2).ok());
    const auto on_their_way = posted();
    ASSERT_EQ(on_their_way.size(), 4u);
    for (std::uint32_t group = 0; group < 4; ++group)
      EXPECT_EQ(on_their_way[group].second, (2 * group) << 16 | 2u);
    EXPECT_EQ(on_their_way[0].first, on_their_way[1].first);
    EXPECT_NE(on_their_way[1].first, on_their_way[2].first);
    EXPECT_EQ(on_their_way[2].first, on_their_way[3].first);
    end_round();
  }
  free();
  EXPECT_EQ(device_.pairs.size(), pairs_before_);
}

TEST_F(ChannelTest, AChannelHasAsManyQueuesAsItsPolicySays) {
  open(4, 4);
  std::int32_t tag = 0;
  for (const std::uint32_t queues : {1u, 2u, 4u, 16u, 0u}) {
    SCOPED_TRACE(queues);
    const std::size_t used = queues == 0 || queues > 4 ? 4 : queues;
    init(++tag, {}, queues);
    EXPECT_EQ(device_.pairs.size(), pairs_before_ + 2 * (used + 1)) << "not as many on both sides";
    for (int round = 0; round < 3; ++round) {
      start();
      settle();
      for (std::int32_t group = 0; group < 4; ++group)
        ASSERT_TRUE(send_->pready(2 * group, 2).ok());
      std::set<std::uint32_t> pairs;
      for (const auto& [pair, immediate] : posted()) pairs.insert(pair);
      EXPECT_EQ(pairs.size(), used);
      end_round();
    }
    free();
    EXPECT_EQ(device_.pairs.size(), pairs_before_);
  }
  EXPECT_EQ(said_, "");
}

TEST_F(ChannelTest, SidesWithOtherNumbersOfQueuesUseTheSmaller) {
  for (const auto& [senders, receivers] : {std::pair{4u, 2u}, std::pair{1u, 3u}}) {
    open(senders, receivers);
    init();
    EXPECT_EQ(device_.pairs.size(), pairs_before_ + 2 * (std::min(senders, receivers) + 1));
    start();
    settle();
    ASSERT_TRUE(send_->pready(0, kPartitions).ok());
    end_round();
    free();
    for (auto& side : sides_) side.reset();
  }
}

TEST_F(ChannelTest, ARoundTakesItsWritesAndACredit) {
  open(0, 0);
  init();
  for (int round = 0; round < 4; ++round) {  // from the second on the posts are prepared
    const std::uint64_t before = device_.carried_out;
    start();
    settle();
    for (std::int32_t partition = 0; partition < kPartitions; ++partition)
      ASSERT_TRUE(send_->pready(partition).ok());
    ASSERT_EQ(posted().size(), 4u);
    EXPECT_EQ(signalled(), 2u) << round;  // the first one, and the last
    end_round();
    EXPECT_EQ(device_.carried_out - before, 4u + 1) << round;
  }
  free();
}

TEST_F(ChannelTest, ManyOfOneGroupEachAreSignalledEverySixteenth) {
  open(0, 0);
  constexpr std::int32_t kChannels = 20;
  std::vector<SendRequest*> sends;
  std::vector<RecvRequest*> receives;
  std::vector<std::vector<std::byte>> from(kChannels, from_), to(kChannels, to_);
  for (std::int32_t tag = 0; tag < kChannels; ++tag) {
    sends.push_back(must(sides_[0]->network->send_init(
        args_of("receiver", tag, from[static_cast<std::size_t>(tag)], kPartitions),
        sides_[0]->state, {0})));
    receives.push_back(must(sides_[1]->network->recv_init(
        args_of("sender", tag, to[static_cast<std::size_t>(tag)], kPartitions), sides_[1]->state)));
  }
  settle();
  for (int round = 0; round < 3; ++round) {  // from the second on the posts are prepared
    for (RecvRequest* const receive : receives) ASSERT_TRUE(receive->start().ok());
    for (SendRequest* const send : sends) ASSERT_TRUE(send->start().ok());
    settle();
    for (SendRequest* const send : sends)
      for (std::int32_t partition = 0; partition < kPartitions; ++partition)
        ASSERT_TRUE(send->pready(partition).ok());
    ASSERT_EQ(posted().size(), std::size_t{kChannels});
    EXPECT_EQ(signalled(), 2u) << round;  // the first one, and the 17th
    settle();
    for (RecvRequest* const receive : receives) {
      ASSERT_EQ(receive->poll(), Completion::complete);
      receive->finish();
    }
    for (SendRequest* const send : sends) {
      ASSERT_EQ(send->poll(), Completion::complete);
      send->finish();
    }
  }
  for (SendRequest* const send : sends) EXPECT_TRUE(sides_[0]->network->free(send).ok());
  for (RecvRequest* const receive : receives) EXPECT_TRUE(sides_[1]->network->free(receive).ok());
  settle();
}

TEST_F(ChannelTest, WithoutCreditAndOnDemand) {
  open(3, 3);
  init(1, {.has_planner = true, .is_on_demand = true});
  start();  // no credit is there yet: a notice, and a pull
  ASSERT_TRUE(send_->pready(0, kPartitions).ok());
  ASSERT_EQ(posted().size(), 1u);
  EXPECT_EQ(posted()[0].second, 0u) << "a notice of the run that begins at 0";
  end_round();
  start();
  settle();
  ASSERT_TRUE(send_->pready(0, 3).ok());
  settle();
  bool arrived = false;
  bool is_demanded = false;
  for (int asked = 0; asked < 5 && !arrived; ++asked) {
    ASSERT_TRUE(receive_->parrived(1, &arrived).ok());
    for (const auto& [pair, immediate] : posted()) is_demanded |= immediate == 0xffff'0000u;
    settle();
  }
  EXPECT_TRUE(arrived && is_demanded);
  ASSERT_TRUE(send_->pready(3, kPartitions - 3).ok());
  end_round();
  free();
  EXPECT_EQ(device_.pairs.size(), pairs_before_);
}

TEST_F(ChannelTest, AThousandLeaveNothing) {
  open(4, 4);
  for (std::int32_t number = 0; number < 1000; ++number) {
    init(number, {.has_planner = number % 3 == 0, .is_on_demand = number % 3 == 0});
    if (number % 2 == 0) {
      start();
      ASSERT_TRUE(send_->pready(0, kPartitions).ok());
      end_round();
    }
    free();
    ASSERT_EQ(device_.pairs.size(), pairs_before_) << number;
  }
  EXPECT_EQ(said_, "");
}

TEST_F(ChannelTest, AForeignImmediateFailsTheChannel) {
  open(1, 1);
  init();
  start();
  settle();
  ASSERT_TRUE(send_->pready(0, 2).ok());
  for (auto& [number, pair] : device_.pairs)
    for (auto& request : pair->requests) request.work.imm_data = htonl(7u << 16 | 2);
  settle();
  EXPECT_EQ(receive_->poll(), Completion::failed);
  EXPECT_EQ(receive_->error().code(), Errc::kProtocol);
}

TEST_F(ChannelTest, QueuesOfALinkEndTogether) {
  open(4, 4);
  init();
  start();
  settle();
  for (std::int32_t group = 0; group < 4; ++group) ASSERT_TRUE(send_->pready(2 * group, 2).ok());
  const std::uint32_t broken = posted().front().first;
  ASSERT_NE(posted().back().first, broken);
  device_.fail(*device_.pairs[broken], IBV_WC_RETRY_EXC_ERR);
  // Nothing else happens on the device: the requests on the other queues have ended with that.
  for (int turn = 0; turn < 4; ++turn)
    for (std::size_t side = 0; side < 2; ++side) {
      sides_[side]->progress();
      while (sides_[side]->deliver_to(*sides_[1 - side])) {
      }
    }
  EXPECT_EQ(send_->poll(), Completion::failed);
  EXPECT_EQ(send_->error().code(), Errc::kPeerDown);
}

TEST_F(ChannelTest, ALinkOfManyThatHasFailedUnderOneCarriesNoOther) {
  open(0, 0, {.count_max = 2});
  init(1);
  init(2);
  start();
  settle();
  ASSERT_TRUE(send_->pready(0, kPartitions).ok());
  device_.fail(*device_.pairs[posted().front().first], IBV_WC_RETRY_EXC_ERR);
  settle();
  ASSERT_EQ(send_->poll(), Completion::failed);
  EXPECT_EQ(receive_->poll(), Completion::failed);
  send_->finish();
  receive_->finish();
  free();
  init(3);  // on the lane that has none
  EXPECT_NE(said_.find("no link to receiver on lane 1"), std::string::npos) << said_;
  start();
  settle();
  ASSERT_TRUE(send_->pready(0, kPartitions).ok());
  end_round();
}

TEST_F(ChannelTest, SidesThatDifferFailWithThatCause) {
  open(2, 0);
  EXPECT_EQ(names_[0], "verbs/roce/2-a-channel");
  EXPECT_EQ(names_[1], "verbs/roce");
  receive_ =
      must(sides_[1]->network->recv_init(args_of("sender", 1, to_, kPartitions), sides_[1]->state));
  settle();
  EXPECT_NE(said_.find("LARKLANE_VERBS_CHANNEL_QUEUES"), std::string::npos) << said_;
}

TEST_F(ChannelTest, SidesThatDifferFailWithThatCauseAlsoByTheSender) {
  open(2, 0);
  send_ = must(sides_[0]->network->send_init(args_of("receiver", 1, from_, kPartitions),
                                             sides_[0]->state, {0}));
  ASSERT_TRUE(send_->start().ok() && send_->pready(0, kPartitions).ok());
  settle();
  EXPECT_NE(said_.find("LARKLANE_VERBS_CHANNEL_QUEUES"), std::string::npos) << said_;
  EXPECT_NE(send_->poll(), Completion::complete);
  EXPECT_EQ(send_->error().code(), Errc::kUnreachable);
  EXPECT_FALSE(
      sides_[1]->network->recv_init(args_of("sender", 1, to_, kPartitions), sides_[1]->state));
}

TEST_F(ChannelTest, ASendThatCannotBeMadeLeavesNothing) {
  open(2, 2);
  init();
  free();
  for (int turn = 0; turn < 3; ++turn) {
    device_.register_error = ENOMEM;
    EXPECT_FALSE(sides_[0]->network->send_init(args_of("receiver", 1, from_, kPartitions),
                                               sides_[0]->state, {0}));
    device_.register_error = 0;
    settle();
    EXPECT_EQ(device_.pairs.size(), pairs_before_);
  }
}

TEST_F(ChannelTest, TheLinksOfAPeerThatIsGoneEnd) {
  open(2, 2);
  send_ = must(sides_[0]->network->send_init(args_of("receiver", 1, from_, kPartitions),
                                             sides_[0]->state, {0}));
  settle();
  EXPECT_EQ(device_.pairs.size(), pairs_before_ + 2 * 3);
  Side& receiver = *sides_[1];
  receiver.other.is_dead = receiver.other.has_been_ended = true;
  receiver.state->down.store(true, std::memory_order_release);
  receiver.network->on_peer_down(receiver.other);
  EXPECT_EQ(device_.pairs.size(), pairs_before_ + 3);
  receive_ =
      must(receiver.network->recv_init(args_of("sender", 1, to_, kPartitions), receiver.state));
  EXPECT_EQ(receive_->error().code(), Errc::kPeerDown);
}

TEST_F(ChannelTest, MorePartitionsThanTheImmediateHoldsAreRefused) {
  open(1, 1);
  std::vector<std::byte> many(65536);
  auto refused =
      sides_[0]->network->send_init(args_of("receiver", 1, many, 65536), sides_[0]->state, {0});
  EXPECT_FALSE(refused);
  EXPECT_NE(said_.find("65536 partitions are too many"), std::string::npos) << said_;
  many.resize(65535);
  EXPECT_TRUE(
      sides_[0]->network->send_init(args_of("receiver", 1, many, 65535), sides_[0]->state, {0}));
}

}  // namespace
}  // namespace larklane::part
