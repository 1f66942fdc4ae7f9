// The message engine of a world on control planes of another owner: two ranks in one process.

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mpi/p2p/messages.hpp"
#include "mpi/world/identity.hpp"
#include "msg/protocol/communicator.hpp"

namespace larklane::mpi::p2p {
namespace {

constexpr std::uint16_t kFirstKind = 40;
constexpr std::uint32_t kTag = 7;

bool comes(const std::function<bool()>& is_so) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > until) return false;
    ::sched_yield();
  }
  return true;
}

/// A rank: the plane, and the owner that passes its records on.
class RankOfTwo final : private control::Handler {
 public:
  RankOfTwo(const Job& job, int rank) {
    std::vector<control::Listener> own;
    own.push_back(std::move(control::Listener::bind(address_of({job, rank})).value()));
    const std::scoped_lock lock(mutex_);
    plane_ = std::move(control::Plane::create(std::move(own), *this).value());
    std::string problem;
    auto made = Messages::create(Config{}, *plane_, job, rank, 2, kFirstKind, &problem);
    EXPECT_TRUE(made) << problem;
    messages_ = std::move(made).value();
    const int members[] = {0, 1};
    const msg::Creation creation(messages_->engine());
    communicator = messages_->engine().open({1, 2}, members, rank, {}).value();
  }
  ~RankOfTwo() override {
    communicator->close();
    messages_->close();
    {
      const std::scoped_lock lock(mutex_);
      messages_.reset();
    }
    plane_.reset();
  }

  /// By other threads: the program makes no call.
  std::uint64_t helper_wakeups() const { return plane_->counters().helper_wakeups; }

  msg::Communicator* communicator = nullptr;

 private:
  void on_record(control::Peer& from, const control::Record& record) override {
    const std::scoped_lock lock(mutex_);
    if (messages_ && record.kind >= kFirstKind) messages_->handler().on_record(from, record);
  }
  void on_peer_down(control::Peer& peer) override {
    const std::scoped_lock lock(mutex_);
    if (messages_) messages_->handler().on_peer_down(peer);
  }

  std::mutex mutex_;
  std::unique_ptr<control::Plane> plane_;
  std::unique_ptr<Messages> messages_;
};

class TwoRanks : public testing::Test {
 protected:
  void SetUp() override {
    const Job job = job_named("messages-" + std::to_string(::getpid()));
    for (int rank = 0; rank < 2; ++rank) ranks_[rank] = std::make_unique<RankOfTwo>(job, rank);
  }
  void TearDown() override {  // each waits for the other's goodbye
    std::thread other([&] { ranks_[1].reset(); });
    ranks_[0].reset();
    other.join();
  }
  msg::Communicator& of(int rank) { return *ranks_[rank]->communicator; }
  bool completes(msg::Pending* pending, int rank) {
    return pending == nullptr || comes([&] {
             of(1 - rank).progress();
             msg::progress(*pending);
             return msg::is_done(*pending);
           });
  }
  /// Only rank `by` makes progress.
  bool completes_by(msg::Pending* pending, int by) {
    return pending == nullptr || comes([&] {
             of(by).progress();
             return msg::is_done(*pending);
           });
  }
  void wait_in_vain(int by, std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < until) of(by).progress();
  }
  msg::Pending* send(int from, std::vector<std::byte>& bytes,
                     msg::Communicator::Mode mode = msg::Communicator::Mode::standard) {
    auto sent = of(from).send(1 - from, kTag, {bytes.data(), bytes.size()}, mode);
    EXPECT_TRUE(sent);
    return sent ? *sent : nullptr;
  }
  msg::Pending& receive(int at, int from, std::vector<std::byte>& bytes) {
    return **of(at).receive(from, kTag, {bytes.data(), bytes.size()});
  }
  void leave(int rank) { ranks_[rank].reset(); }
  std::uint64_t helper_wakeups(int rank) const { return ranks_[rank]->helper_wakeups(); }
  /// From rank `from` to the other one.
  void pass(int from, std::size_t bytes) {
    std::vector<std::byte> sent(bytes, std::byte{1});
    std::vector<std::byte> got(bytes);
    auto receive = of(1 - from).receive(from, kTag, {got.data(), bytes});
    auto send =
        of(from).send(1 - from, kTag, {sent.data(), bytes}, msg::Communicator::Mode::standard);
    ASSERT_TRUE(receive && send);
    ASSERT_TRUE(completes(*receive, 1 - from) && completes(*send, from));
    EXPECT_EQ(sent, got);
    msg::release(**receive);
    if (*send != nullptr) msg::release(**send);
  }

 private:
  std::unique_ptr<RankOfTwo> ranks_[2];
};

TEST_F(TwoRanks, MessagesUseThePlaneOfAnotherOwner) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
    pass(0, bytes);
    pass(1, bytes);
  }
}

TEST_F(TwoRanks, AWorldWithoutMessagesSaysGoodbye) {}

TEST_F(TwoRanks, AWaitingSenderWakesTheReceiversHelper) {
  using Mode = msg::Communicator::Mode;
  for (const Mode mode : {Mode::synchronous, Mode::standard})
    for (int time = 0; time < 3; ++time) {  // a wait rings more than once
      const std::size_t bytes = mode == Mode::synchronous ? 8 : std::size_t{1} << 20;
      std::vector<std::byte> sent(bytes, std::byte{1}), got(bytes);
      msg::Pending& received = receive(1, 0, got);
      msg::Pending* const pending = send(0, sent, mode);
      ASSERT_TRUE(completes_by(pending, 0));
      EXPECT_TRUE(msg::is_done(received));
      EXPECT_EQ(sent, got);
      msg::release(*pending);
      msg::release(received);
    }
}

TEST_F(TwoRanks, AWaitingReceiverWakesTheHelperOfASenderWithABacklog) {
  pass(0, 8);
  constexpr std::size_t kMessages = 200, kBytes = 4096;  // several rings
  for (std::size_t nth = 0; nth < kMessages; ++nth) {
    std::vector<std::byte> bytes(kBytes, static_cast<std::byte>(nth));
    ASSERT_EQ(send(0, bytes), nullptr);
  }
  for (std::size_t nth = 0; nth < kMessages; ++nth) {
    std::vector<std::byte> got(kBytes);
    msg::Pending& received = receive(1, 0, got);
    ASSERT_TRUE(completes_by(&received, 1)) << nth;
    ASSERT_EQ(got, std::vector<std::byte>(kBytes, static_cast<std::byte>(nth)));
    msg::release(received);
  }
}

TEST_F(TwoRanks, AMessageSentBeforeItsLinkIsMadeComesWithoutItsSender) {
  std::vector<std::byte> bytes(8, std::byte{1}), got(8);
  ASSERT_EQ(send(0, bytes), nullptr);
  msg::Pending& received = receive(1, msg::kAnySource, got);
  ASSERT_TRUE(completes_by(&received, 1));
  EXPECT_EQ(bytes, got);
  msg::release(received);
}

TEST_F(TwoRanks, ARankThatLeavesWakesTheHelperThatItsMessagesWaitFor) {
  pass(0, 8);
  constexpr std::size_t kMessages = 100, kBytes = 4096;
  std::vector<std::byte> bytes(kBytes, std::byte{1}), got(kBytes);
  for (std::size_t nth = 0; nth < kMessages; ++nth) ASSERT_EQ(send(0, bytes), nullptr);
  std::atomic<bool> has_left{false};
  std::thread leaving([&] {
    leave(0);
    has_left.store(true, std::memory_order_release);  // pairs with the load below
  });
  if (!comes([&] { return has_left.load(std::memory_order_acquire); }))
    std::abort();  // it can't be joined
  leaving.join();
  for (std::size_t nth = 0; nth < kMessages; ++nth) {
    msg::Pending& received = receive(1, 0, got);
    ASSERT_TRUE(completes_by(&received, 1));
    EXPECT_TRUE(msg::outcome(received).status.ok());
    EXPECT_EQ(got, bytes);
    msg::release(received);
  }
}

TEST_F(TwoRanks, HelpersSleepUnlessAPeerStalls) {
  constexpr std::chrono::milliseconds kTime{200};
  constexpr std::uint64_t kFew = 10;  // of some 4,000 if it rang each 50 us
  pass(0, 8);
  pass(1, 8);
  std::vector<std::byte> bytes(8), got(8);
  msg::Pending& received = receive(1, 0, got);
  const std::uint64_t before[] = {helper_wakeups(0), helper_wakeups(1)};
  wait_in_vain(1, kTime);  // the peer owes no answer
  EXPECT_LE(helper_wakeups(0), before[0] + kFew);
  EXPECT_LE(helper_wakeups(1), before[1] + kFew);
  ASSERT_EQ(send(0, bytes), nullptr);
  ASSERT_TRUE(completes_by(&received, 1));
  msg::release(received);
  // It has no receive: one ring brings it there, more don't help.
  msg::Pending* const waiting = send(0, bytes, msg::Communicator::Mode::synchronous);
  wait_in_vain(0, kTime);
  EXPECT_GT(helper_wakeups(1), before[1]);
  EXPECT_LE(helper_wakeups(1), before[1] + kFew);
  msg::Pending& late = receive(1, 0, got);
  ASSERT_TRUE(completes(waiting, 0) && completes(&late, 1));
  msg::release(*waiting);
  msg::release(late);
}

}  // namespace
}  // namespace larklane::mpi::p2p
