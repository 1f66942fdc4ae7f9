// A link that is silent while a round is open is probed, and lost if its peer's host does not
// answer: two processes' channels on one device made of memory, which acknowledges when the test
// calls for it.

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "device.hpp"
#include "net/verbs/fabric.hpp"
#include "prop/scripted_plane.hpp"
#include "two_sides.hpp"

namespace larklane::part {
namespace {

using Kind = vci::Work::Kind;
using verbs::FakeQueuePair;

constexpr std::uint64_t kSilenceNs = 10'000'000'000, kLookNs = kSilenceNs / 2;
constexpr std::int32_t kPartitions = 4;

class ProbeTest : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel, std::string_view message) { said_.emplace_back(message); });
    for (std::size_t i = 0; i < 2; ++i) {
      std::string reason;
      auto fabric = verbs::Fabric::open({}, &reason);
      ASSERT_TRUE(fabric) << reason;
      sides_[i] = std::make_unique<Side>(std::move(fabric).value(), vci::VciPool::Options{},
                                         i == 0 ? "receiver" : "sender", kSilenceNs);
      ASSERT_TRUE(sides_[i]->network->watch_by(helpers_[i]));
    }
    send_ = must(sides_[0]->network->send_init(args_of("receiver", 1, from_, kPartitions),
                                               sides_[0]->state, {0, 1, 2, 3}));
    receive_ = must(
        sides_[1]->network->recv_init(args_of("sender", 1, to_, kPartitions), sides_[1]->state));
    settle();
  }
  ~ProbeTest() override { set_log_sink({}); }

  void settle() { part::settle(device_, sides_); }
  void start_and_send(std::int32_t partitions) {
    ASSERT_TRUE(receive_->start().ok() && send_->start().ok());
    settle();
    ASSERT_TRUE(send_->pready(0, partitions).ok());
    settle();
  }
  void at(std::uint64_t now_ns) {
    for (WatchingPlane& helper : helpers_) helper.at(now_ns);
  }
  std::uint64_t probes(std::size_t side) {
    return sides_[side]->counts().operations_of(Kind::probe);
  }
  /// The pair that has something posted and belongs to `side`.
  FakeQueuePair* waiting_pair(std::size_t side) {
    std::vector<FakeQueuePair*> waiting;
    for (const auto& [number, pair] : device_.pairs)
      if (!pair->requests.empty()) waiting.push_back(pair);
    return waiting.size() == 2 ? waiting[side] : nullptr;
  }
  /// Where the other side's writes arrive. Pairs are numbered as they are made: of each side the
  /// writes, then the reads.
  FakeQueuePair* pair_to(std::size_t side) {
    return std::next(device_.pairs.begin(), static_cast<std::ptrdiff_t>(2 * side))->second;
  }
  void end_round() {
    settle();
    EXPECT_EQ(send_->poll(), Completion::complete);
    EXPECT_EQ(receive_->poll(), Completion::complete);
    send_->finish();
    receive_->finish();
  }
  bool is_said(const std::string& text) const {
    return std::any_of(said_.begin(), said_.end(),
                       [&](const std::string& one) { return one.find(text) != std::string::npos; });
  }

  verbs::FakeDevice device_;
  std::vector<std::byte> from_ = std::vector<std::byte>(64, std::byte{7});
  std::vector<std::byte> to_ = std::vector<std::byte>(64);
  WatchingPlane helpers_[2];
  std::unique_ptr<Side> sides_[2];
  SendRequest* send_ = nullptr;
  RecvRequest* receive_ = nullptr;
  std::vector<std::string> said_;
};

TEST_F(ProbeTest, AHostThatAnswersIsProbedOnceInTheTimeOfSilence) {
  start_and_send(2);
  at(0);
  at(kLookNs - 1);
  at(kLookNs);
  EXPECT_EQ(probes(0) + probes(1), 0u);
  at(2 * kLookNs);
  EXPECT_EQ(probes(0), 1u);
  EXPECT_EQ(probes(1), 1u);
  EXPECT_EQ(device_.waiting(), 2u);
  for (const auto& [number, pair] : device_.pairs)
    for (const auto& request : pair->requests) {
      EXPECT_EQ(request.work.opcode, IBV_WR_RDMA_WRITE);
      EXPECT_EQ(request.work.num_sge, 0);
    }
  settle();
  at(3 * kLookNs);
  EXPECT_EQ(probes(1), 1u);
  at(4 * kLookNs);
  EXPECT_EQ(probes(1), 2u);
  settle();
  ASSERT_TRUE(send_->pready(2, 2).ok());
  end_round();
  EXPECT_EQ(from_, to_);
  EXPECT_TRUE(said_.empty()) << said_.front();
}

TEST_F(ProbeTest, AtMostOneIsPosted) {
  start_and_send(1);
  for (std::uint64_t look = 0; look < 20; ++look) at(look * kLookNs);
  EXPECT_EQ(probes(0), 1u);
  EXPECT_EQ(probes(1), 1u);
  ASSERT_TRUE(send_->pready(1, 3).ok());
  end_round();
}

TEST_F(ProbeTest, NothingIsSentWithoutAnOpenRoundOrWhereSomethingMoves) {
  for (std::uint64_t look = 0; look < 10; ++look) at(look * kLookNs);
  start_and_send(0);
  for (std::int32_t partition = 0; partition < kPartitions; ++partition) {
    ASSERT_TRUE(send_->pready(partition).ok());
    settle();
    at((10 + static_cast<std::uint64_t>(partition)) * kLookNs);
  }
  end_round();
  for (std::uint64_t look = 15; look < 25; ++look) at(look * kLookNs);
  EXPECT_EQ(probes(0) + probes(1), 0u);
}

TEST_F(ProbeTest, AReceiverThatWaitsForAHostThatIsGoneFails) {
  start_and_send(2);
  at(0);
  at(kLookNs);
  at(2 * kLookNs);
  ASSERT_EQ(receive_->poll(), Completion::pending);
  FakeQueuePair* const pair = waiting_pair(1);
  ASSERT_NE(pair, nullptr);
  device_.fail(*pair, IBV_WC_RETRY_EXC_ERR);
  // Any thread that polls finds it; the helper, which polls every 100 ms meanwhile, reports it.
  sides_[1]->progress();
  EXPECT_LE(helpers_[1].lanes.front()->next_time_ns(), 2 * kLookNs + 100'000'000);
  helpers_[1].at(2 * kLookNs + 100'000'000);
  ASSERT_EQ(receive_->poll(), Completion::failed);
  EXPECT_EQ(receive_->error().code(), Errc::kUnreachable);
  EXPECT_NE(receive_->error_text().find("its host does not answer"), std::string::npos)
      << receive_->error_text();
  EXPECT_TRUE(is_said("no link to sender on lane 0: its host does not answer"));
  receive_->finish();

  // The peer that can still be notified fails, too.
  while (sides_[1]->deliver_to(*sides_[0])) {
  }
  ASSERT_EQ(send_->poll(), Completion::failed);
  EXPECT_EQ(send_->error().code(), Errc::kUnreachable);
  send_->finish();
}

// Its rounds end although it has posted nothing, before a probe would detect it.
TEST_F(ProbeTest, AReceiverWithAFailedReceiveFailsWithTheCause) {
  start_and_send(2);
  at(0);
  device_.fail_receive(*pair_to(1), IBV_WC_LOC_PROT_ERR);
  sides_[1]->progress();
  EXPECT_EQ(receive_->poll(), Completion::pending) << "nobody has looked after the link";
  at(kLookNs);
  EXPECT_EQ(probes(1), 0u);
  ASSERT_EQ(receive_->poll(), Completion::failed);
  EXPECT_EQ(receive_->error().code(), Errc::kUnreachable);
  EXPECT_NE(receive_->error_text().find("tag 1"), std::string::npos) << receive_->error_text();
  EXPECT_NE(receive_->error_text().find("at sender: status 4"), std::string::npos)
      << receive_->error_text();
  EXPECT_TRUE(is_said("no link to sender on lane 0: status 4"));
  receive_->finish();
  EXPECT_TRUE(sides_[1]->network->free(receive_).ok());

  while (sides_[1]->deliver_to(*sides_[0])) {
  }
  ASSERT_EQ(send_->poll(), Completion::failed);
  EXPECT_NE(send_->error_text().find(
                "receiver reports unreachable: the other side has lost it: status 4"),
            std::string::npos)
      << send_->error_text();
  send_->finish();
  EXPECT_TRUE(sides_[0]->network->free(send_).ok());
  settle();
}

TEST_F(ProbeTest, ALinkThatAnotherChannelHasLostIsLostForAll) {
  start_and_send(1);
  at(0);
  for (const auto& [number, pair] : device_.pairs) device_.fail(*pair, IBV_WC_WR_FLUSH_ERR);
  ASSERT_TRUE(send_->pready(1).ok());  // refused: it is the sender's that fails
  sides_[0]->progress();
  at(kLookNs);
  at(2 * kLookNs);
  EXPECT_EQ(receive_->poll(), Completion::pending);
  for (auto& side : sides_) side->progress();
  at(2 * kLookNs + 100'000'000);
  EXPECT_EQ(receive_->poll(), Completion::failed);
  EXPECT_EQ(send_->poll(), Completion::failed);
  receive_->finish();
  send_->finish();
}

TEST_F(ProbeTest, ALostDeviceFailsPendingRoundsWithTheReason) {
  start_and_send(1);
  at(0);
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  device_.events.push_back(event);
  const auto is_served_by_others = [this] {
    for (int turn = 0; turn < 100; ++turn) sides_[0]->progress();
    return helpers_[0].lanes.front()->is_served_by_others();
  };
  EXPECT_FALSE(is_served_by_others()) << "it has looked just now";
  EXPECT_TRUE(is_served_by_others());
  at(kLookNs);
  EXPECT_FALSE(is_served_by_others()) << "only who would sleep hears of it";
  for (WatchingPlane& helper : helpers_)
    (void)helper.lanes.front()->before_sleep();  // as the helper does
  for (auto& side : sides_) side->progress();
  // The first look of both has taken the event: the other process has a device of its own.
  EXPECT_EQ(send_->poll(), Completion::failed);
  EXPECT_NE(send_->error_text().find("device is lost"), std::string::npos) << send_->error_text();
  EXPECT_TRUE(is_said("verbs fake0 port 1 is lost: it has failed"));
  EXPECT_EQ(receive_->poll(), Completion::pending);
  send_->finish();
}

}  // namespace
}  // namespace larklane::part
