// ChannelLifetime: users, failure, the peer's end, and the first Start.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../prop/scripted_peer.hpp"
#include "part/lifetime.hpp"
#include "part/records.hpp"

namespace larklane::part {
namespace {

constexpr std::uint16_t kFail = 77;

class Half : public ChannelLifetime {
 public:
  Half(Kind kind, std::shared_ptr<PeerState> peer)
      : ChannelLifetime(args(), kind, std::move(peer), kFail) {
    channel_.store(5, std::memory_order_relaxed);
  }
  static InitArgs args() {
    return {{1, 2}, 0, 3, "other", nullptr, 2, 8, std::make_shared<Typemap>(Typemap::contiguous(1)),
            ""};
  }
  using ChannelLifetime::fail_without_peer;
  Completion end(bool is_peer_gone = false) { return failed_once_quiet(is_peer_gone); }
  Status failure() const { return failure_.status(); }
  std::string text() const { return failure_.text(); }
};

class PartLifetime : public testing::Test {
 protected:
  PartLifetime() { peer_->peer = &other_; }
  record::Fail sent_fail() const {
    record::Fail fail{};
    EXPECT_EQ(other_.sent.size(), 1u);
    EXPECT_EQ(other_.sent.front().first, kFail);
    EXPECT_TRUE(record::read(other_.sent.front().second, fail));
    return fail;
  }

  ScriptedPeer other_{"other"};
  std::shared_ptr<PeerState> peer_ = std::make_shared<PeerState>();
  Half half_{Kind::send, peer_};
};

TEST_F(PartLifetime, TheFirstFailureStays) {
  half_.fail(Errc::kNoMemory, "first");
  half_.fail(Errc::kProtocol, "second");
  EXPECT_EQ(half_.failure(), Status(Errc::kNoMemory));
  EXPECT_EQ(half_.text(), "first");
}

TEST_F(PartLifetime, FailIsSentOnceWhenTheLastUserHasLeft) {
  {
    const Moving first(half_);
    EXPECT_TRUE(first);
    half_.give_up(Status(Errc::kSystem, 5), "lost");
    const Moving second(half_);
    EXPECT_FALSE(second) << "a failed half admits no user";
    EXPECT_TRUE(other_.sent.empty()) << "a user is still there";
    EXPECT_EQ(half_.end(true), Completion::pending);
  }
  const record::Fail fail = sent_fail();
  EXPECT_EQ(fail.channel, 5u);
  EXPECT_EQ(fail.by_sender, 1u);
  EXPECT_EQ(fail.code, static_cast<std::int32_t>(Errc::kSystem));
  EXPECT_EQ(fail.detail, 5);
  half_.give_up(Errc::kProtocol, "again");
  EXPECT_EQ(other_.sent.size(), 1u);
}

TEST_F(PartLifetime, AFailedRoundLastsUntilThePeerIsQuietOrGone) {
  half_.give_up(Errc::kSystem, "lost");
  EXPECT_EQ(half_.end(), Completion::pending);
  EXPECT_EQ(half_.end(true), Completion::failed);
  half_.on_peer_fail(Errc::kSystem, "lost, too");
  EXPECT_EQ(half_.end(), Completion::failed);
}

TEST_F(PartLifetime, AHalfAnswersThePeersFail) {
  half_.on_peer_fail(Status(Errc::kSystem, 7), "reported");
  EXPECT_EQ(sent_fail().detail, 7);
  EXPECT_EQ(half_.text(), "reported");
}

TEST_F(PartLifetime, TheReasonNamesThePeersEnd) {
  EXPECT_FALSE(half_.peer_closed());
  half_.on_peer_closed(0);
  EXPECT_TRUE(half_.peer_closed());
  half_.fail_without_peer();
  EXPECT_EQ(half_.failure(), Status(Errc::kPeerFreed));
  EXPECT_EQ(half_.text(), half_.other_half() + " has been freed");

  Half receive(Kind::receive, peer_);
  peer_->down.store(true, std::memory_order_release);
  receive.fail_without_peer();
  EXPECT_EQ(receive.failure(), Status(Errc::kPeerDown));
  EXPECT_EQ(receive.text(), receive.other_half() + ": its process has ended");
  EXPECT_EQ(receive.own_half().find("the partitioned receive"), 0u);
  EXPECT_EQ(receive.other_half().find("the partitioned send"), 0u);
}

TEST(StartGate, TheLaterOfStartAndAcceptanceOpens) {
  const auto nothing = [](bool) {};
  StartGate early;
  EXPECT_FALSE(early.start());
  EXPECT_TRUE(early.accept(nothing));
  EXPECT_TRUE(early.start()) << "later rounds open in Start";
  StartGate late;
  EXPECT_FALSE(late.is_open());
  EXPECT_FALSE(late.accept(nothing));
  EXPECT_TRUE(late.is_open());
  EXPECT_TRUE(late.start());
}

TEST(StartGate, OneOfTwoThreadsOpensAndSeesTheAcceptance) {
  for (int trial = 0; trial < 500; ++trial) {
    StartGate gate;
    int accepted = 0;  // published by the gate
    std::atomic<int> opened{0};
    std::thread acceptor([&] {
      if (gate.accept([&](bool) { accepted = 1; }))
        opened.fetch_add(accepted, std::memory_order_relaxed);
    });
    if (gate.start()) opened.fetch_add(accepted, std::memory_order_relaxed);
    acceptor.join();
    EXPECT_EQ(opened.load(std::memory_order_relaxed), 1);
  }
}

}  // namespace
}  // namespace larklane::part
