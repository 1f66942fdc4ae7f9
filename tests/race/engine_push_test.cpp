// What the receiver does not fetch from its slots: the sender copies by itself.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "engine_pair.hpp"

namespace larklane::part {
namespace {

/// A first round: afterwards the two know each other.
void meet(SendRequest& send, RecvRequest& recv) {
  ASSERT_TRUE(recv.start().ok());
  ASSERT_TRUE(send.start().ok());
  ASSERT_TRUE(send.pready(0, send.partitions()).ok());
  ASSERT_EQ(complete(recv), Completion::complete);
  ASSERT_EQ(complete(send), Completion::complete);
}

constexpr std::int32_t kPushed = 16;
constexpr std::uint64_t kPushedBytes = 8 << 10;

// The first slots fill up, and then the sender copies by itself what the receiver does not fetch.
TEST(Pushes, WhatTheReceiverDoesNotFetchIsInItsBufferAllTheSame) {
  EnginePair pair(kSlots);
  std::vector<std::byte> from(kPushed * kPushedBytes), to(from.size());
  SendRequest* send =
      made(pair.sender->send_init(args_of(pair.recv_address, from.data(), kPushed, kPushedBytes)));
  RecvRequest* recv =
      made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), kPushed, kPushedBytes)));
  meet(*send, *recv);
  const std::uint64_t first_round = pair.sender->summary().moved_by_sender;
  for (std::uint64_t round = 1; round < 4; ++round) {
    fill(from, round);
    ASSERT_TRUE(recv->start().ok());
    ASSERT_TRUE(send->start().ok());
    ASSERT_TRUE(send->pready(0, kPushed - 1).ok());
    EXPECT_EQ(send->pready(kPushed - 2, 1).code(), Errc::kAlreadyReady);
    for (std::uint64_t i = 8 * kPushedBytes; i < (kPushed - 1) * kPushedBytes; ++i)
      ASSERT_EQ(to[i], byte_of(round, i)) << i;
    EXPECT_NE(to[0], byte_of(round, 0)) << "nobody has fetched it";
    ASSERT_TRUE(send->pready(kPushed - 1, 1).ok());
    ASSERT_EQ(complete(*recv), Completion::complete);
    ASSERT_EQ(complete(*send), Completion::complete);
    EXPECT_TRUE(holds(to, round));
  }
  const Summary sent = pair.sender->summary(), received = pair.receiver->summary();
  EXPECT_EQ(sent.moved_by_sender, first_round + 3u * 8);
  EXPECT_EQ(sent.moved_by_sender + received.moved_by_receiver, 4u * kPushed);
  EXPECT_EQ(sent.bytes_moved + received.bytes_moved, 4 * from.size());
  EXPECT_TRUE(pair.sender->free(send).ok());
  EXPECT_TRUE(pair.receiver->free(recv).ok());
}

// Its slot is not marked meanwhile, and marks are one byte.
TEST(Pushes, ForManyRoundsLeaveNoMarkThatALaterRoundTakesForItsOwn) {
  EnginePair pair(kSlots);
  std::vector<std::byte> from(kPushed * kPushedBytes), to(from.size());
  SendRequest* send =
      made(pair.sender->send_init(args_of(pair.recv_address, from.data(), kPushed, kPushedBytes)));
  RecvRequest* recv =
      made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), kPushed, kPushedBytes)));
  meet(*send, *recv);
  for (std::uint64_t round = 1; round <= 258; ++round) {
    fill(from, round);
    ASSERT_TRUE(recv->start().ok());
    ASSERT_TRUE(send->start().ok());
    const std::int32_t last = kPushed - 1;
    if (round < 3) {
      ASSERT_TRUE(send->pready(last, 1).ok());  // through its slot
    }
    ASSERT_TRUE(send->pready(0, last).ok());
    if (round > 256) {
      for (int look = 0; look < 3; ++look) {
        bool arrived = true;
        ASSERT_TRUE(recv->parrived(last, &arrived).ok());
        EXPECT_FALSE(arrived) << round;
        EXPECT_EQ(recv->poll(), Completion::pending) << round;
        EXPECT_EQ(send->poll(), Completion::pending) << round;
      }
    }
    if (round >= 3) {
      ASSERT_TRUE(send->pready(last, 1).ok());
    }
    ASSERT_EQ(complete(*recv), Completion::complete);
    ASSERT_EQ(complete(*send), Completion::complete);
    ASSERT_TRUE(holds(to, round)) << round;
  }
  EXPECT_TRUE(pair.sender->free(send).ok());
  EXPECT_TRUE(pair.receiver->free(recv).ok());
}

TEST(Pushes, WaitForTheReceiversStart) {
  EnginePair pair(kSlots);
  std::vector<std::byte> from(kPushed * kPushedBytes), to(from.size());
  SendRequest* send =
      made(pair.sender->send_init(args_of(pair.recv_address, from.data(), kPushed, kPushedBytes)));
  RecvRequest* recv =
      made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), kPushed, kPushedBytes)));
  for (std::uint64_t round = 1; round < 4; ++round) {
    fill(from, round);
    const std::vector<std::byte> before = to;
    ASSERT_TRUE(send->start().ok());
    for (std::int32_t p = 0; p < kPushed; ++p) ASSERT_TRUE(send->pready(p, 1).ok());
    EXPECT_EQ(to, before) << "the program has its buffer";
    ASSERT_TRUE(recv->start().ok());
    ASSERT_EQ(complete(*recv), Completion::complete);
    ASSERT_EQ(complete(*send), Completion::complete);
    EXPECT_TRUE(holds(to, round));
  }
  EXPECT_EQ(pair.sender->summary().moved_by_sender, 0u);
  EXPECT_TRUE(pair.sender->free(send).ok());
  EXPECT_TRUE(pair.receiver->free(recv).ok());
}

// Partitions 32 to 63 have a claim word of their own, which no reader touches in the first rounds.
TEST(Pushes, OfAllThatAClaimWordCoversDoNotKeepLaterReadersOut) {
  constexpr std::int32_t kPartitions = 64;
  EnginePair pair(kSlots);
  std::vector<std::byte> from(kPartitions * kPushedBytes), to(from.size());
  SendRequest* send = made(
      pair.sender->send_init(args_of(pair.recv_address, from.data(), kPartitions, kPushedBytes)));
  RecvRequest* recv = made(
      pair.receiver->recv_init(args_of(pair.send_address, to.data(), kPartitions, kPushedBytes)));
  meet(*send, *recv);
  const std::uint64_t first_round = pair.sender->summary().moved_by_sender;
  for (std::uint64_t round = 1; round <= 10; ++round) {
    const bool keeps_up = round == 5 || round > 7;
    fill(from, round);
    ASSERT_TRUE(recv->start().ok());
    ASSERT_TRUE(send->start().ok());
    for (std::int32_t p = 0; p < kPartitions; ++p) {
      ASSERT_TRUE(send->pready(p, 1).ok());
      bool arrived = false;
      if (keeps_up) {
        ASSERT_TRUE(recv->parrived(p, &arrived).ok());
        EXPECT_TRUE(arrived) << round << " " << p;
      }
    }
    ASSERT_EQ(complete(*recv), Completion::complete) << round;
    ASSERT_EQ(complete(*send), Completion::complete) << round;
    ASSERT_TRUE(holds(to, round)) << round;
  }
  EXPECT_EQ(pair.sender->summary().moved_by_sender, first_round + 6u * (kPartitions - 8));
  EXPECT_TRUE(pair.sender->free(send).ok());
  EXPECT_TRUE(pair.receiver->free(recv).ok());
}

}  // namespace
}  // namespace larklane::part
