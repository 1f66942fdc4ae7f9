// Copies in memory that peers map: each holds one message at a time, and a sender that gets no copy
// sends without one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "msg/memory/bounce_buffers.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

std::vector<std::byte> filled(std::size_t bytes, int value) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

class BounceTest : public testing::Test {
 protected:
  static Job::Options options(std::uint64_t bytes_max) {
    Job::Options options;
    options.network.limits.bounce_bytes_max = bytes_max;
    return options;
  }
};

TEST_F(BounceTest, EachCopyHasABufferOfItsOwn) {
  Job job(options(1u << 18));
  BounceBuffers buffers(job.at(0).engine->fabric(), 1u << 18);
  std::vector<BounceBuffers::Copy> copies;
  for (const std::size_t bytes : {1u, 16'384u, 16'385u, 65'536u, 65'537u, 262'144u}) {
    const auto from = filled(bytes, static_cast<int>(copies.size()) + 1);
    copies.push_back(buffers.copy_of(from));
    ASSERT_NE(copies.back().memory, nullptr) << bytes;
    EXPECT_TRUE(std::equal(from.begin(), from.end(), copies.back().start)) << bytes;
    for (std::size_t i = 0; i + 1 < copies.size(); ++i)
      EXPECT_EQ(static_cast<int>(copies[i].start[0]), static_cast<int>(i) + 1);
  }
}

TEST_F(BounceTest, ThereAreSoManyAndTheyComeBack) {
  Job job(options(1u << 18));
  BounceBuffers buffers(job.at(0).engine->fabric(), 1u << 18);
  const auto from = filled(1u << 18, 7);
  std::vector<BounceBuffers::Copy> copies;
  while (copies.size() < 1000) {
    auto copy = buffers.copy_of(from);
    if (copy.memory == nullptr) break;
    copies.push_back(std::move(copy));
  }
  EXPECT_EQ(copies.size(), 16u);
  std::byte* const last = copies.back().start;
  copies.pop_back();
  EXPECT_EQ(buffers.copy_of(from).start, last);  // the buffer that caches may still hold
  BounceBuffers::abandon(*copies.back().memory);
  copies.clear();
  while (auto copy = buffers.copy_of(from).memory) {
    copies.push_back({std::move(copy)});
    ASSERT_LT(copies.size(), 1000u);
  }
  EXPECT_EQ(copies.size(), 15u);
  EXPECT_EQ(buffers.copy_of(filled((1u << 18) + 1, 7)).memory, nullptr);
  BounceBuffers none(job.at(0).engine->fabric(), 0);
  EXPECT_EQ(none.copy_of(filled(1, 7)).memory, nullptr);
}

/// More messages than buffers, received after the program has overwritten its send buffers. Copied
/// messages arrive unchanged; a completion returns the memory of the others to the program.
TEST_F(BounceTest, AMessageThatFindsNoneGoesFromWhereItLies) {
  constexpr std::size_t kMessages = 150, kBytes = 10'000;
  Job job(options(16'384));
  auto sent = std::move(CompletionQueue::create(job.at(0).domain).value());
  auto received = std::move(CompletionQueue::create(job.at(1).domain).value());
  PostOptions of_sender, of_receiver;
  of_sender.completion = &sent;
  of_receiver.completion = &received;
  std::vector<std::vector<std::byte>> from, to;
  for (std::size_t i = 0; i < kMessages; ++i) {
    from.push_back(filled(kBytes, static_cast<int>(i)));
    to.push_back(filled(kBytes, 255));
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    Result<Post> post = Post::retry;
    for (int tries = 0; tries < 1000 && post && *post == Post::retry; ++tries) {
      post = post_send(*job.at(0).vci, 1, static_cast<std::uint32_t>(i), from[i].data(), kBytes,
                       of_sender);
      job.settle();
    }
    ASSERT_TRUE(post && *post == Post::posted) << i;
  }
  for (std::size_t i = 0; i < 128; ++i) std::ranges::fill(from[i], std::byte{255});
  for (std::size_t i = 0; i < kMessages; ++i)
    ASSERT_TRUE(post_recv(*job.at(1).vci, 0, static_cast<std::uint32_t>(i), to[i].data(), kBytes,
                          of_receiver));
  job.settle();
  for (std::size_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(sent.pop()) << i;
    ASSERT_TRUE(received.pop()) << i;
    EXPECT_EQ(to[i], filled(kBytes, static_cast<int>(i))) << i;
  }
  EXPECT_FALSE(sent.pop());
}

/// An answer gives a buffer back, also an answer that no receiver took the message. Of these there
/// are more than buffers, and the next message is still copied.
TEST_F(BounceTest, ARefusedBufferComesBack) {
  constexpr std::size_t kMessages = 150, kBytes = 10'000;
  Job job(options(16'384));
  auto sent = std::move(CompletionQueue::create(job.at(0).domain).value());
  PostOptions posting;
  posting.completion = &sent;
  RemoteCompletion gone = 0;
  {
    auto mail = std::move(CompletionQueue::create(job.at(1).domain).value());
    gone = mail.register_remote().value();
  }
  auto from = filled(kBytes, 1);
  for (std::size_t i = 0; i < kMessages; ++i) {
    Result<Post> post = Post::retry;
    for (int tries = 0; tries < 1000 && post && *post == Post::retry; ++tries) {
      post = post_am(*job.at(0).vci, 1, gone, 1, from.data(), kBytes, posting);
      job.settle();
    }
    ASSERT_TRUE(post && *post == Post::posted) << i;
    const auto end = sent.pop();
    ASSERT_TRUE(end) << i;
    EXPECT_FALSE(end->status.ok());
  }
  ASSERT_EQ(*post_send(*job.at(0).vci, 1, 2, from.data(), kBytes, posting), Post::posted);
  std::ranges::fill(from, std::byte{2});
  auto received = std::move(CompletionQueue::create(job.at(1).domain).value());
  PostOptions receiving;
  receiving.completion = &received;
  auto to = filled(kBytes, 0);
  ASSERT_TRUE(post_recv(*job.at(1).vci, 0, 2, to.data(), kBytes, receiving));
  job.settle();
  EXPECT_EQ(to, filled(kBytes, 1));
}

}  // namespace
}  // namespace larklane::msg
