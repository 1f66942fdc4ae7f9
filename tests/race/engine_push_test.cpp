// Slots that the receiver does not empty: the sender copies by itself.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "engine_pair.hpp"

namespace larklane::part {
namespace {

constexpr std::uint64_t kPartitionBytes = 8 << 10;

/// A pair of requests with partitions that are worth a push.
class Pushes : public testing::Test {
 protected:
  explicit Pushes(std::int32_t partitions = 16, std::uint64_t partition_bytes = kPartitionBytes)
      : last_(partitions - 1),
        from_(static_cast<std::size_t>(partitions) * partition_bytes),
        to_(from_.size()),
        send_(made(pair_.sender->send_init(
            args_of(pair_.recv_address, from_.data(), partitions, partition_bytes)))),
        recv_(made(pair_.receiver->recv_init(
            args_of(pair_.send_address, to_.data(), partitions, partition_bytes)))) {}
  void TearDown() override {
    EXPECT_TRUE(pair_.sender->free(send_).ok());
    EXPECT_TRUE(pair_.receiver->free(recv_).ok());
  }

  void start(std::uint64_t round) {
    fill(from_, round);
    ASSERT_TRUE(recv_->start().ok());
    ASSERT_TRUE(send_->start().ok());
  }
  void finish(std::uint64_t round) {
    ASSERT_EQ(complete(*recv_), Completion::complete) << round;
    ASSERT_EQ(complete(*send_), Completion::complete) << round;
    ASSERT_TRUE(holds(to_, round)) << round;
  }
  /// A first round: afterwards the two know each other. @return partitions that the sender moved
  std::uint64_t meet() {
    start(0);
    EXPECT_TRUE(send_->pready(0, last_ + 1).ok());
    finish(0);
    return pushed();
  }
  std::uint64_t pushed() const { return pair_.sender->summary().moved_by_sender; }

  const std::int32_t last_;
  EnginePair pair_{kSlots};
  std::vector<std::byte> from_, to_;
  SendRequest* send_;
  RecvRequest* recv_;
};

// The first slots fill up, and then the sender itself copies the partitions that the receiver does
// not fetch.
TEST_F(Pushes, UnfetchedPartitionsReachTheReceiversBuffer) {
  const std::uint64_t first_round = meet();
  for (std::uint64_t round = 1; round < 4; ++round) {
    start(round);
    ASSERT_TRUE(send_->pready(0, last_).ok());
    EXPECT_EQ(send_->pready(last_ - 1, 1).code(), Errc::kAlreadyReady);
    for (std::uint64_t i = 8 * kPartitionBytes; i < to_.size() - kPartitionBytes; ++i)
      ASSERT_EQ(to_[i], byte_of(round, i)) << i;
    EXPECT_NE(to_[0], byte_of(round, 0)) << "nobody has fetched it";
    ASSERT_TRUE(send_->pready(last_, 1).ok());
    ASSERT_NO_FATAL_FAILURE(finish(round));
  }
  const Summary sent = pair_.sender->summary(), received = pair_.receiver->summary();
  EXPECT_EQ(sent.moved_by_sender, first_round + 3u * 8);
  EXPECT_EQ(sent.moved_by_sender + received.moved_by_receiver, 4u * 16);
  EXPECT_EQ(sent.bytes_moved + received.bytes_moved, 4 * from_.size());
}

class PushesOfLargeSlots : public Pushes {
 protected:
  static constexpr std::uint64_t kBytes = 64 << 10;
  PushesOfLargeSlots() : Pushes(16, kBytes) {}
};

// Of large slots fewer are left to the receiver.
TEST_F(PushesOfLargeSlots, BeginAfterThree) {
  const std::uint64_t first_round = meet();
  start(1);
  for (std::int32_t p = 0; p < last_; ++p) ASSERT_TRUE(send_->pready(p, 1).ok());
  for (std::uint64_t i = 3 * kBytes; i < to_.size() - kBytes; ++i)
    ASSERT_EQ(to_[i], byte_of(1, i)) << i;
  EXPECT_NE(to_[0], byte_of(1, 0)) << "nobody has fetched it";
  ASSERT_TRUE(send_->pready(last_, 1).ok());
  ASSERT_NO_FATAL_FAILURE(finish(1));
  EXPECT_EQ(pushed(), first_round + 16 - 3);
}

// Its slot is not marked meanwhile, and marks are one byte.
TEST_F(Pushes, ForManyRoundsLeaveNoMarkThatALaterRoundTakesForItsOwn) {
  meet();
  for (std::uint64_t round = 1; round <= 258; ++round) {
    start(round);
    if (round < 3) {
      ASSERT_TRUE(send_->pready(last_, 1).ok());  // through its slot
    }
    ASSERT_TRUE(send_->pready(0, last_).ok());
    if (round > 256) {
      for (int look = 0; look < 3; ++look) {
        bool arrived = true;
        ASSERT_TRUE(recv_->parrived(last_, &arrived).ok());
        EXPECT_FALSE(arrived) << round;
        EXPECT_EQ(recv_->poll(), Completion::pending) << round;
        EXPECT_EQ(send_->poll(), Completion::pending) << round;
      }
    }
    if (round >= 3) {
      ASSERT_TRUE(send_->pready(last_, 1).ok());
    }
    ASSERT_NO_FATAL_FAILURE(finish(round));
  }
}

TEST_F(Pushes, WaitForTheReceiversStart) {
  for (std::uint64_t round = 1; round < 4; ++round) {
    fill(from_, round);
    const std::vector<std::byte> before = to_;
    ASSERT_TRUE(send_->start().ok());
    for (std::int32_t p = 0; p <= last_; ++p) ASSERT_TRUE(send_->pready(p, 1).ok());
    EXPECT_EQ(to_, before) << "the program has its buffer";
    ASSERT_TRUE(recv_->start().ok());
    ASSERT_NO_FATAL_FAILURE(finish(round));
  }
  EXPECT_EQ(pushed(), 0u);
}

// Partitions 32 to 63 have a claim word of their own, which no reader touches in the first rounds.
class PushesOfTwoClaimWords : public Pushes {
 protected:
  PushesOfTwoClaimWords() : Pushes(64) {}
};

TEST_F(PushesOfTwoClaimWords, OfAllThatAClaimWordCoversDoNotKeepLaterReadersOut) {
  const std::uint64_t first_round = meet();
  for (std::uint64_t round = 1; round <= 10; ++round) {
    const bool keeps_up = round == 5 || round > 7;
    start(round);
    for (std::int32_t p = 0; p <= last_; ++p) {
      ASSERT_TRUE(send_->pready(p, 1).ok());
      bool arrived = false;
      if (keeps_up) {
        ASSERT_TRUE(recv_->parrived(p, &arrived).ok());
        EXPECT_TRUE(arrived) << round << " " << p;
      }
    }
    ASSERT_NO_FATAL_FAILURE(finish(round));
  }
  EXPECT_EQ(pushed(), first_round + 6u * (64 - 8));
}

}  // namespace
}  // namespace larklane::part
