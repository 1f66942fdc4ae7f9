// The message engine of a world on control planes of another owner: two ranks in one process.

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
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
             of(rank).progress(pending);
             return msg::is_done(*pending);
           });
  }
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

}  // namespace
}  // namespace larklane::mpi::p2p
