// Messages that the program has written into a packet itself, on a network inside one process.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

using UserPacket = larklane::Packet;

constexpr std::uint32_t kPackets = 14;  // of 16: the others are never a user's

class UserPacketTest : public JobTest {
 protected:
  UserPacketTest() : sent_(queue(0)), heard_(queue(1)) {}

  PostOptions telling(CompletionObject& object, bool queues = false) {
    PostOptions options = msg::telling(object);
    options.queues = queues;
    return options;
  }
  /// With `bytes` in it.
  UserPacket packet(const std::vector<std::byte>& bytes) {
    UserPacket taken = take_packet(vci(0));
    EXPECT_TRUE(taken);
    if (!bytes.empty()) std::memcpy(taken.start(), bytes.data(), bytes.size());
    return taken;
  }
  std::uint32_t free_packets() {
    std::vector<UserPacket> all;
    while (UserPacket taken = take_packet(vci(0))) all.push_back(std::move(taken));
    return static_cast<std::uint32_t>(all.size());
  }
  void expect_receives(const std::vector<std::byte>& wanted) {
    std::vector<std::byte> into(wanted.size());
    ASSERT_TRUE(post_recv(vci(1), 0, 7, into.data(), into.size(), telling(heard_)));
    job_.settle();
    const auto completion = heard_.pop();
    ASSERT_TRUE(completion);
    EXPECT_TRUE(completion->status.ok());
    EXPECT_EQ(completion->bytes, wanted.size());
    EXPECT_EQ(into, wanted);
  }

  CompletionQueue sent_, heard_;
};

TEST_F(UserPacketTest, IsAMessageLikeAnother) {
  const RemoteCompletion number = heard_.register_remote().value();
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{100}, kEager})
    for (const bool is_told : {false, true}) {
      SCOPED_TRACE(std::to_string(bytes) + (is_told ? " told" : ""));
      const PostOptions options = is_told ? telling(sent_) : PostOptions{};
      const Post wanted = is_told ? Post::posted : Post::done;
      const auto from = random_bytes(bytes, bytes + 1);
      UserPacket taken = packet(from);
      EXPECT_EQ(*post_send(vci(0), 1, 7, taken, bytes, options), wanted);
      EXPECT_FALSE(taken);
      expect_receives(from);
      taken = packet(from);
      EXPECT_EQ(*post_am(vci(0), 1, number, 3, taken, bytes, options), wanted);
      EXPECT_FALSE(taken);
      job_.settle();
      const auto there = heard_.pop();
      ASSERT_TRUE(there);
      ASSERT_EQ(there->bytes, bytes);
      EXPECT_TRUE(bytes == 0 || std::memcmp(there->buffer, from.data(), bytes) == 0);
      free_buffer(there->buffer);
      for (int i = 0; i < 2 * is_told; ++i) {
        const auto here = sent_.pop();
        ASSERT_TRUE(here);
        EXPECT_EQ(here->bytes, bytes);
      }
      EXPECT_EQ(free_packets(), kPackets);
    }
}

TEST_F(UserPacketTest, AnUnpostedPacketIsGivenBack) {
  {
    UserPacket taken = take_packet(vci(0)), other = take_packet(vci(0));
    EXPECT_NE(taken.start(), other.start());
    EXPECT_EQ(free_packets(), kPackets - 2);
    EXPECT_EQ(job_.at(0).engine->held_packet_count(), 2u);
    taken = std::move(other);
    EXPECT_EQ(free_packets(), kPackets - 1);
  }
  EXPECT_EQ(free_packets(), kPackets);
  EXPECT_EQ(job_.at(0).engine->held_packet_count(), 0u);
}

TEST_F(UserPacketTest, OnRetryItIsStillTheUsers) {
  const auto from = random_bytes(400, 1);
  UserPacket taken;
  int posted = 0;
  while (true) {
    taken = packet(from);
    auto answer = post_send(vci(0), 1, 7, taken, from.size());
    ASSERT_TRUE(answer);
    if (*answer == Post::retry) break;
    ASSERT_LT(++posted, 100);
  }
  ASSERT_TRUE(taken);
  EXPECT_EQ(std::memcmp(taken.start(), from.data(), from.size()), 0);
  EXPECT_EQ(*post_send(vci(0), 1, 7, taken, from.size(), telling(sent_)), Post::retry);
  ASSERT_TRUE(taken);
  // The packet of a waiting post is the library's.
  EXPECT_EQ(*post_send(vci(0), 1, 7, taken, from.size(), telling(sent_, true)), Post::posted);
  EXPECT_FALSE(taken);
  for (int i = 0; i < posted + 1; ++i) expect_receives(from);
  EXPECT_TRUE(sent_.pop());
  EXPECT_EQ(free_packets(), kPackets);
}

/// A record of the receiver's takes a packet, too: no other record would report the end.
TEST_F(UserPacketTest, WhenAllAreOutLongMessagesStillEnd) {
  const auto from = random_bytes(5000, 1);
  std::vector<std::byte> into(from.size());
  std::vector<UserPacket> all;
  while (UserPacket next = take_packet(vci(1))) all.push_back(std::move(next));
  ASSERT_EQ(all.size(), kPackets);
  ASSERT_TRUE(post_recv(vci(1), 0, 7, into.data(), into.size(), telling(heard_)));
  EXPECT_EQ(*post_send(vci(0), 1, 7, from.data(), from.size(), telling(sent_)), Post::posted);
  job_.settle();
  EXPECT_TRUE(heard_.pop());
  EXPECT_TRUE(sent_.pop());
  EXPECT_EQ(into, from);
}

/// Posts that wait for one peer leave the way to others open.
TEST(UserPackets, OfAPeerThatIsNotConnectedStopNoOther) {
  Job::Options options;
  options.size = 3;
  Job job(options);
  (void)job.at(0).to(1);
  job.connect();
  auto heard = std::move(CompletionQueue::create(job.at(1).domain).value());
  PostOptions queued, told;
  queued.queues = true;
  told.completion = &heard;
  Vci& vci = *job.at(0).vci;
  std::uint32_t posted = 0;
  for (UserPacket next = take_packet(vci); next; next = take_packet(vci), ++posted)
    ASSERT_EQ(*post_send(vci, 2, 7, next, 8, queued), Post::posted);
  EXPECT_EQ(posted, kPackets);
  std::uint64_t into = 0;
  const std::uint64_t from = 77;
  ASSERT_TRUE(post_recv(*job.at(1).vci, 0, 7, &into, 8, told));
  EXPECT_EQ(*post_send(vci, 1, 7, &from, 8), Post::done);
  job.settle();  // and 2 is connected
  EXPECT_TRUE(heard.pop());
  EXPECT_EQ(into, from);
}

/// Even of few packets, one is no program's.
TEST(UserPackets, OfALaneWithFewStopNoOther) {
  for (const std::uint32_t packets : {1u, 2u, 7u}) {
    Job::Options options;
    options.lane.packets.packets = packets;
    Job job(options);
    job.connect_all();
    auto heard = std::move(CompletionQueue::create(job.at(1).domain).value());
    PostOptions told;
    told.completion = &heard;
    std::vector<UserPacket> all;
    while (UserPacket next = take_packet(*job.at(0).vci)) all.push_back(std::move(next));
    EXPECT_EQ(all.size(), packets - 1);
    const auto from = random_bytes(400, 1);
    std::vector<std::byte> into(400);
    ASSERT_TRUE(post_recv(*job.at(1).vci, 0, 7, into.data(), into.size(), told));
    ASSERT_EQ(*post_send(*job.at(0).vci, 1, 7, from.data(), from.size()), Post::done) << packets;
    job.settle();
    EXPECT_TRUE(heard.pop());
    EXPECT_EQ(into, from);
  }
}

TEST_F(UserPacketTest, AMalformedPostIsRefusedAndLeavesThePacket) {
  UserPacket none, elsewhere = take_packet(vci(1)), taken = packet(random_bytes(8, 1));
  expect_refused(post_send(vci(0), 1, 7, none, 0));
  expect_refused(post_am(vci(0), 1, 1, 7, none, 0));
  expect_refused(post_send(vci(0), 1, 7, elsewhere, 8));
  expect_refused(post_am(vci(0), 1, 1, 7, elsewhere, 8));
  expect_refused(post_send(vci(0), 1, 7, taken, kEager + 1));
  expect_refused(post_send(vci(0), 1, 7, taken, UINT64_MAX));
  expect_refused(post_send(vci(0), 2, 7, taken, 8));
  expect_refused(post_send(vci(0), 1, 7, taken, 8, {}, {}, {8, false}));
  expect_refused(post_am(vci(0), 1, 0, 7, taken, 8));
  EXPECT_TRUE(elsewhere);
  ASSERT_TRUE(taken);
  EXPECT_EQ(*post_send(vci(0), 1, 7, taken, 8), Post::done);
  expect_refused(post_send(vci(0), 1, 7, taken, 8));
  expect_receives(random_bytes(8, 1));
}

/// A second handle of the same packet, as C can have it.
TEST_F(UserPacketTest, ANameThatIsOverFindsNothing) {
  UserPacket taken = packet({});
  UserPacket copy(*taken.lane(), taken.number(), taken.start());
  EXPECT_EQ(*post_send(vci(0), 1, 7, taken, 8), Post::done);
  job_.settle();
  expect_refused(post_send(vci(0), 1, 7, copy, 8));
  std::vector<UserPacket> all;  // among them the same memory
  while (UserPacket next = take_packet(vci(0))) all.push_back(std::move(next));
  ASSERT_EQ(all.size(), kPackets);
  expect_refused(post_send(vci(0), 1, 7, copy, 8));
  { const UserPacket gone = std::move(copy); }
  EXPECT_EQ(job_.at(0).engine->held_packet_count(), kPackets);
  UserPacket invented(vci(0).inside(), UINT64_MAX, nullptr);
  expect_refused(post_send(vci(0), 1, 7, invented, 8));
}

TEST_F(UserPacketTest, OutlivesTheVciThatItWasTakenFrom) {
  auto other = std::make_unique<Vci>(*job_.at(0).engine->take_lane().value());
  UserPacket taken = take_packet(*other);
  ASSERT_TRUE(taken);
  const bool is_same_lane = &other->inside() == &vci(0).inside();
  other.reset();
  if (is_same_lane) {
    EXPECT_EQ(*post_send(vci(0), 1, 7, taken, 8), Post::done);
  } else {
    expect_refused(post_send(vci(0), 1, 7, taken, 8));
  }
}

TEST_F(UserPacketTest, OfAPeerThatIsGoneItComesBack) {
  UserPacket taken = packet(random_bytes(400, 1)), waits = packet({});
  for (int i = 0; i < 100; ++i) {  // to the last cell
    (void)post_send(vci(0), 1, 7, "a", 1);
    job_.wire.settle();
    (void)vci(0).progress();
  }
  EXPECT_EQ(*post_send(vci(0), 1, 7, waits, 400, telling(sent_, true)), Post::posted);
  for (auto& link : job_.at(0).links) link->end(Errc::kPeerDown);
  EXPECT_EQ(post_send(vci(0), 1, 7, taken, 400).error(), Status(Errc::kPeerDown));
  EXPECT_TRUE(taken);
  job_.settle();
  const auto completion = sent_.pop();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status.code(), Errc::kPeerDown);
  taken = {};
  EXPECT_EQ(free_packets(), kPackets);
}

}  // namespace
}  // namespace larklane::msg
