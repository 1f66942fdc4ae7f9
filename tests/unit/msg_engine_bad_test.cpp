// Mistakes of programs, and failures: each is an error, and nothing is lost or left behind.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

class EngineBadTest : public testing::Test {
 protected:
  explicit EngineBadTest(Job::Options options = {}) : job_(std::move(options)) {
    job_.connect_all();
    told_.emplace(std::move(CompletionQueue::create(job_.at(1).domain).value()));
  }
  Vci& vci(int rank) { return *job_.at(rank).vci; }
  PostOptions telling() { return msg::telling(*told_); }

  Job job_;
  std::optional<CompletionQueue> told_;
};

TEST_F(EngineBadTest, ABufferThatIsNotInItsRegionIsRefused) {
  std::vector<std::byte> memory(2000), outside(2000);
  const Region region = job_.at(1).add_region(memory.data(), 1000);
  PostOptions options = telling();
  options.region = &region;
  const Status refused(Errc::kInvalidArgument);
  for (std::byte* const start : {outside.data(), memory.data() + 1})
    EXPECT_EQ(post_recv(vci(1), 0, 1, start, 1000, options).error(), refused);
  for (const std::uint64_t bytes : {10u, 1000u}) {
    EXPECT_EQ(post_send(vci(1), 0, 1, outside.data(), bytes, options).error(), refused) << bytes;
    EXPECT_EQ(post_am(vci(1), 0, 1, 1, outside.data(), bytes, options).error(), refused) << bytes;
  }
  ASSERT_TRUE(post_recv(vci(1), 0, 1, memory.data(), 1000, options));
  EXPECT_EQ(*post_send(vci(0), 1, 1, outside.data(), 10), Post::done);
  job_.settle();
  EXPECT_TRUE(told_->pop());
}

TEST_F(EngineBadTest, AnEmptyRegionGetsSignals) {
  const Region nothing = job_.at(1).add_region(nullptr, 0);
  const RemoteCompletion number = told_->register_remote().value();
  EXPECT_EQ(*post_put(vci(0), nothing.remote(), 0, nullptr, 0, {}, number, 7), Post::done);
  job_.settle();
  const auto heard = told_->pop();
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->tag, 7u);
}

TEST_F(EngineBadTest, AHandleThatWasFreedIsRefused) {
  auto gone = std::move(CompletionQueue::create(job_.at(1).domain).value());
  const CompletionQueue other = std::move(gone);
  PostOptions options;
  options.completion = &gone;
  std::uint64_t into = 0;
  EXPECT_EQ(post_recv(vci(1), 0, 1, &into, 8, options).error(), Status(Errc::kInvalidArgument));
}

TEST_F(EngineBadTest, APlaceThatWasGivenBackIsTakenAgain) {
  Job::Options options;
  options.lanes.count_max = 2;
  Job job(options);
  Engine& engine = *job.at(0).engine;  // a place on lane 0 is taken
  const std::uint32_t first = job.at(0).vci->inside().index();
  for (int i = 0; i < 10; ++i) {
    const Vci vci(*engine.take_lane().value());
    EXPECT_NE(vci.inside().index(), first) << i;
  }
}

/// All operations that wait for a peer's answers end when the peer does, in a time linear in their
/// number.
TEST(EngineEnds, TimeOfAPeersEndIsLinearInItsOperations) {
  const auto ns_of = [](std::uint32_t waiting) {
    Job::Options options;
    options.lane = {{16, 8}, 1u << 17, 64};
    Job job(options);
    job.connect_all();
    Vci& zero = *job.at(0).vci;
    auto told = std::move(Counter::create(job.at(0).domain).value());
    PostOptions telling;
    telling.completion = &told;
    std::uint64_t word = 0;
    const Region region = job.at(1).add_region(&word, sizeof word);
    PacketLink& link = *job.at(0).links.back();
    Awaited& awaited = zero.inside().awaited();
    for (std::uint32_t i = 0; i < waiting; ++i) {
      Operation& operation = *zero.inside().take(told.inside());
      operation.connection = &job.at(0).to(1);
      EXPECT_TRUE(awaited.add(operation));
    }
    const auto begin = std::chrono::steady_clock::now();
    link.end(Errc::kPeerDown);
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(told.failed(), waiting);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
  };
  // 16 times as many; a quadratic time would be 256 times as long. Other load on the machine may
  // spoil a try.
  double ratio = 0;
  for (int tries = 0; tries == 0 || (ratio >= 128 && tries < 5); ++tries) {
    const auto few = ns_of(1 << 12), many = ns_of(1 << 16);
    ratio = static_cast<double>(many) / static_cast<double>(few);
  }
  EXPECT_LT(ratio, 128);
}

}  // namespace
}  // namespace larklane::msg
