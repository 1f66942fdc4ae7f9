// How the two jobs of a connect and accept identify each other.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "base/unproven.hpp"
#include "mpi/world/meeting.hpp"

namespace larklane::mpi {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Member> members(const char* job, int count) {
  std::vector<Member> made;
  const auto name = std::make_shared<const std::string>(job);
  for (int rank = 0; rank < count; ++rank) made.push_back({name, rank});
  return made;
}

std::string text(const std::vector<Member>& of) { return text_of(std::span<const Member>(of)); }

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// To the one socket of this process that listens. None: its backlog is full.
UniqueFd connect_to_listener() {
  sockaddr_un name{};
  socklen_t length = sizeof name;
  for (int fd = 0; fd < 1024; ++fd) {
    int is_listening = 0;
    socklen_t bytes = sizeof is_listening;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &bytes) != 0 ||
        is_listening == 0)
      continue;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) break;
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0)
      return socket;
    break;
  }
  return UniqueFd();
}

class MpiMeeting : public testing::Test {
 protected:
  /// Unique per test and process: the names are those of the whole host.
  std::string port_name() const {
    return std::to_string(getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  ContextId key() const { return {static_cast<std::uint64_t>(getpid()), 7}; }

  const Meeting own_{{1, 2}, members("server", 2)};
  const std::unique_ptr<Port> port_ = Port::open(port_name());
};

TEST_F(MpiMeeting, BothSidesLearnTheOthersMembers) {
  Caller caller(port_name(), members("client", 3));
  auto answer = std::async(std::launch::async, [&] { return caller.connected(); });
  const auto others = port_->accepted(&own_, 3);
  const auto meeting = answer.get();
  ASSERT_TRUE(others);
  ASSERT_TRUE(meeting);
  EXPECT_EQ(text(*others), "0-2@client");
  EXPECT_EQ(meeting->text(), own_.text());
}

TEST_F(MpiMeeting, AServerWithoutLarklaneIsNotWaitedFor) {
  const auto begin = Clock::now();
  Caller caller(port_name() + "other", members("client", 1));
  EXPECT_FALSE(caller.connected());
  EXPECT_LT(Clock::now() - begin, kAnswerWait / 2);
}

TEST_F(MpiMeeting, AClientWithoutLarklaneIsNotWaitedFor) {
  const auto begin = Clock::now();
  EXPECT_FALSE(port_->accepted(&own_, 1));
  EXPECT_LT(Clock::now() - begin, kDoneWait / 2);
}

TEST_F(MpiMeeting, AClientThatIsGoneIsNotWaitedFor) {
  const auto begin = Clock::now();
  { const Caller caller(port_name(), members("client", 1)); }
  EXPECT_FALSE(port_->accepted(&own_, 1));
  EXPECT_LT(Clock::now() - begin, kDoneWait / 2);
}

TEST_F(MpiMeeting, AClientThatWaitsItsTurnIsNotTheOneThatWasAccepted) {
  Caller first(port_name(), members("first", 1)), second(port_name(), members("second", 1));
  auto answer = std::async(std::launch::async, [&] { return second.connected(); });
  auto others = port_->accepted(&own_, 1);
  ASSERT_TRUE(others);
  EXPECT_EQ(text(*others), "0@second");
  EXPECT_TRUE(answer.get());

  answer = std::async(std::launch::async, [&] { return first.connected(); });
  others = port_->accepted(&own_, 1);
  ASSERT_TRUE(others);
  EXPECT_EQ(text(*others), "0@first");
  EXPECT_TRUE(answer.get());
}

TEST_F(MpiMeeting, AClientThatIsLateIsNeverTakenForALaterOne) {
  Caller late(port_name(), members("late", 1));
  EXPECT_FALSE(port_->accepted(&own_, 1));  // another client was connected
  EXPECT_FALSE(late.connected());
  EXPECT_FALSE(port_->accepted(&own_, 1));
}

TEST_F(MpiMeeting, SilentStrangersCostNoTimeAndFewDescriptors) {
  std::vector<UniqueFd> strangers;
  for (int turn = 0; turn < 3; ++turn) {
    while (auto stranger = connect_to_listener()) strangers.push_back(std::move(stranger));
    const auto begin = Clock::now();
    const auto before = open_descriptors();
    EXPECT_FALSE(port_->accepted(&own_, 3));
    EXPECT_LT(Clock::now() - begin, kDoneWait / 2);
    EXPECT_LE(open_descriptors(), before);
  }
  EXPECT_GT(strangers.size(), 300U);
  for (int i = 0; i < 100; ++i) strangers.push_back(connect_to_listener());
  Caller caller(port_name(), members("client", 3));
  auto answer = std::async(std::launch::async, [&] { return caller.connected(); });
  const auto before = open_descriptors();
  EXPECT_TRUE(port_->accepted(&own_, 3));
  EXPECT_TRUE(answer.get());
  EXPECT_LE(open_descriptors(), before + Unproven<int>::kMost);
}

TEST_F(MpiMeeting, AWrongNumberOfProcessesIsUnknownToBoth) {
  Caller caller(port_name(), members("client", 3));
  auto answer = std::async(std::launch::async, [&] { return caller.connected(); });
  EXPECT_FALSE(port_->accepted(&own_, 2));
  EXPECT_FALSE(answer.get());
}

TEST_F(MpiMeeting, AServerThatDoesNotKnowItsOwnSideIsUnknownToBoth) {
  Caller caller(port_name(), members("client", 3));
  auto answer = std::async(std::launch::async, [&] { return caller.connected(); });
  EXPECT_FALSE(port_->accepted(nullptr, 3));
  EXPECT_FALSE(answer.get());
}

TEST_F(MpiMeeting, APortIsBoundOnce) {
  ASSERT_TRUE(port_);
  EXPECT_FALSE(Port::open(port_name()));
}

TEST_F(MpiMeeting, NewsReachTheOthers) {
  const Mailbox root(key(), 1), zero(key(), 0), two(key(), 2);
  root.send(4, own_);  // rank 3 runs without Larklane
  for (const Mailbox* other : {&zero, &two}) {
    const auto news = other->receive(1);
    ASSERT_TRUE(news);
    EXPECT_EQ(news->text(), own_.text());
  }
}

TEST_F(MpiMeeting, NewsOutliveTheRoot) {
  const Mailbox other(key(), 0);
  { Mailbox(key(), 1).send(2, own_); }
  const auto news = other.receive(1);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->text(), own_.text());
}

TEST_F(MpiMeeting, ARootThatLearntNothingReportsIt) {
  const auto begin = Clock::now();
  const Mailbox root(key(), 0), other(key(), 1);
  root.send(2, std::nullopt);
  EXPECT_FALSE(other.receive(0));
  EXPECT_LT(Clock::now() - begin, kNewsWait / 2);
}

TEST_F(MpiMeeting, ARootWithoutLarklaneIsNotWaitedFor) {
  const auto begin = Clock::now();
  EXPECT_FALSE(Mailbox(key(), 1).receive(0));
  EXPECT_LT(Clock::now() - begin, kNewsWait / 2);
}

}  // namespace
}  // namespace larklane::mpi
