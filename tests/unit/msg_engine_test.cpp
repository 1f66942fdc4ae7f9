// Each operation between processes on a network inside one, one at a time.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "prop/msg_seeds.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint64_t kLengths[] = {0, 1, 100, kEager, kEager + 1, 5000};

class EngineTest : public JobTest {
 protected:
  PostOptions telling(CompletionObject& object, bool always = true) {
    PostOptions options = msg::telling(object);
    options.user_context = this;
    options.signals_always = always;
    return options;
  }
  static void expect_is(Result<Post> answer, Post post) {
    ASSERT_TRUE(answer) << errc_name(answer.error().code());
    EXPECT_EQ(*answer, post);
  }
};

TEST_F(EngineTest, AMessageMatchesItsReceiveInEitherOrder) {
  for (const bool is_expected : {true, false})
    for (const int to : {0, 1})
      for (const std::uint64_t bytes : kLengths) {
        SCOPED_TRACE(std::to_string(bytes) + (is_expected ? " expected" : " unexpected"));
        CompletionQueue sent = queue(0), received = queue(to);
        const auto from = random_bytes(bytes, bytes + 1);
        std::vector<std::byte> into(bytes);
        const auto receive = [&] {
          expect_posted(post_recv(vci(to), 0, 7, into.data(), into.size(), telling(received)));
        };
        if (is_expected) receive();
        expect_posted(post_send(vci(0), to, 7, from.data(), bytes, telling(sent)));
        if (!is_expected) {
          job_.settle();
          receive();
        }
        const Completion there = next(received), here = next(sent);
        EXPECT_TRUE(there.status.ok());
        EXPECT_EQ(there.rank, 0);
        EXPECT_EQ(there.tag, 7u);
        EXPECT_EQ(there.bytes, bytes);
        EXPECT_EQ(there.buffer, into.data());
        EXPECT_EQ(there.user_context, this);
        EXPECT_TRUE(here.status.ok());
        EXPECT_EQ(here.rank, to);
        EXPECT_EQ(into, from);
      }
}

TEST_F(EngineTest, AnOperationOverAtOnceIsDoneWithoutACompletion) {
  CompletionQueue sent = queue(0), received = queue(1);
  const auto from = random_bytes(20, 3);
  expect_is(post_send(vci(0), 1, 1, from.data(), 20, telling(sent, false)), Post::done);
  job_.settle();
  std::vector<std::byte> into(20);
  Completion done;
  expect_is(post_recv(vci(1), 0, 1, into.data(), 20, telling(received, false), &done), Post::done);
  EXPECT_EQ(into, from);
  EXPECT_EQ(done.bytes, 20u);
  EXPECT_EQ(done.rank, 0);
  EXPECT_EQ(done.tag, 1u);
  job_.settle();
  EXPECT_FALSE(sent.pop());
  EXPECT_FALSE(received.pop());
  EXPECT_TRUE(received.free().ok());
}

TEST_F(EngineTest, ATooShortReceiveReportsTheMessagesLength) {
  for (const std::uint64_t bytes : {kEager, kEager + 1}) {
    CompletionQueue sent = queue(0), received = queue(1);
    const auto from = random_bytes(bytes, 3);
    std::vector<std::byte> into(bytes - 1);
    expect_posted(post_recv(vci(1), 0, 1, into.data(), into.size(), telling(received)));
    expect_posted(post_send(vci(0), 1, 1, from.data(), bytes, telling(sent)));
    const Completion there = next(received);
    EXPECT_EQ(there.status.code(), Errc::kSizeMismatch);
    EXPECT_EQ(there.bytes, bytes);
    EXPECT_TRUE(next(sent).status.ok());
  }
}

TEST_F(EngineTest, AnActiveMessageBringsItsBytesAndFindsItsObject) {
  for (const std::uint64_t bytes : kLengths) {
    CompletionQueue sent = queue(0), there = queue(1);
    const RemoteCompletion number = there.register_remote().value();
    const auto from = random_bytes(bytes, bytes + 2);
    expect_posted(post_am(vci(0), 1, number, 9, from.data(), bytes, telling(sent)));
    const Completion heard = next(there);
    EXPECT_TRUE(heard.status.ok());
    EXPECT_EQ(heard.rank, 0);
    EXPECT_EQ(heard.tag, 9u);
    ASSERT_EQ(heard.bytes, bytes);
    EXPECT_TRUE(bytes == 0 || std::memcmp(heard.buffer, from.data(), bytes) == 0);
    free_buffer(heard.buffer);
    EXPECT_TRUE(next(sent).status.ok());
  }
}

TEST_F(EngineTest, AFreedObjectGetsNoCompletion) {
  CompletionQueue sent = queue(0);
  RemoteCompletion number = 0;
  {
    CompletionQueue there = queue(1);
    number = there.register_remote().value();
  }
  const auto from = random_bytes(5000, 1);
  expect_posted(post_am(vci(0), 1, number, 9, from.data(), 10, telling(sent)));
  EXPECT_TRUE(next(sent).status.ok());
  expect_posted(post_am(vci(0), 1, number, 9, from.data(), 5000, telling(sent)));
  EXPECT_EQ(next(sent).status.code(), Errc::kInvalidArgument);
  job_.settle();
  EXPECT_EQ(vci(1).inside().counts().lost, 2u);
}

TEST_F(EngineTest, PutsAndGetsMoveBytesAndSignal) {
  std::vector<std::byte> memory(6000);
  const Region region = job_.at(1).add_region(memory.data(), memory.size());
  for (const bool is_signalled : {false, true})
    for (const std::uint64_t bytes : kLengths) {
      SCOPED_TRACE(std::to_string(bytes));
      CompletionQueue mine = queue(0), there = queue(1);
      const RemoteCompletion number = is_signalled ? there.register_remote().value() : 0;
      const auto from = random_bytes(bytes, bytes + 2);
      expect_posted(
          post_put(vci(0), region.remote(), 11, from.data(), bytes, telling(mine), number, 5));
      const Completion put = next(mine);
      EXPECT_TRUE(put.status.ok());
      EXPECT_EQ(put.bytes, bytes);
      if (is_signalled) {
        const Completion heard = next(there);
        EXPECT_EQ(heard.rank, 0);
        EXPECT_EQ(heard.tag, 5u);
        EXPECT_EQ(heard.bytes, bytes);
      }
      job_.settle();
      EXPECT_TRUE(bytes == 0 || std::memcmp(memory.data() + 11, from.data(), bytes) == 0);
      std::vector<std::byte> into(bytes);
      expect_posted(
          post_get(vci(0), region.remote(), 11, into.data(), bytes, telling(mine), number, 6));
      EXPECT_TRUE(next(mine).status.ok());
      EXPECT_EQ(into, from);
      if (is_signalled) {
        EXPECT_EQ(next(there).tag, 6u);
      }
    }
  CompletionQueue mine = queue(0);
  std::byte byte{};
  EXPECT_EQ(post_put(vci(0), region.remote(), 6000, &byte, 1, telling(mine)).error(),
            Status(Errc::kInvalidArgument));
  EXPECT_EQ(post_get(vci(0), region.remote(), ~0ull, &byte, 2, telling(mine)).error(),
            Status(Errc::kInvalidArgument));
}

TEST_F(EngineTest, AtomicsReturnTheOldValue) {
  alignas(8) std::uint64_t words[4] = {5, 6, 7, 8};
  double sums[3] = {1, 2, 3};
  const Region region = job_.at(1).add_region(words, sizeof words);
  const Region doubles = job_.at(1).add_region(sums, sizeof sums);
  CompletionQueue mine = queue(0);
  std::uint64_t before = 0;
  expect_posted(post_fetch_add(vci(0), region.remote(), 8, 10, &before, telling(mine)));
  EXPECT_TRUE(next(mine).status.ok());
  EXPECT_EQ(before, 6u);
  EXPECT_EQ(words[1], 16u);
  expect_posted(post_compare_swap(vci(0), region.remote(), 24, 8, 80, &before, telling(mine)));
  EXPECT_TRUE(next(mine).status.ok());
  EXPECT_EQ(before, 8u);
  EXPECT_EQ(words[3], 80u);
  expect_posted(post_compare_swap(vci(0), region.remote(), 24, 8, 81, &before, telling(mine)));
  EXPECT_TRUE(next(mine).status.ok());
  EXPECT_EQ(before, 80u);
  EXPECT_EQ(words[3], 80u);
  const double values[2] = {0.5, 0.25};
  expect_posted(post_accumulate(vci(0), doubles.remote(), 8, values, 2, telling(mine)));
  EXPECT_TRUE(next(mine).status.ok());
  EXPECT_EQ(sums[0], 1);
  EXPECT_EQ(sums[1], 2.5);
  EXPECT_EQ(sums[2], 3.25);
  const Region crooked = job_.at(1).add_region(reinterpret_cast<std::byte*>(words) + 4, 12);
  expect_posted(post_fetch_add(vci(0), crooked.remote(), 0, 1, &before, telling(mine)));
  EXPECT_EQ(next(mine).status.code(), Errc::kInvalidArgument);
  for (const std::uint64_t offset : {4ull, 32ull})
    EXPECT_EQ(post_fetch_add(vci(0), region.remote(), offset, 1, &before, telling(mine)).error(),
              Status(Errc::kInvalidArgument));
}

TEST_F(EngineTest, MemoryIsNotWrittenWithoutAWordWhenItIsOver) {
  alignas(8) std::uint64_t words[2] = {5, 6};
  const Region region = job_.at(1).add_region(words, sizeof words);
  std::uint64_t into = 0;
  const Status refused(Errc::kInvalidArgument);
  EXPECT_EQ(post_recv(vci(0), 1, 0, &into, 8, {}).error(), refused);
  EXPECT_EQ(post_get(vci(0), region.remote(), 0, &into, 8, {}).error(), refused);
  EXPECT_EQ(post_fetch_add(vci(0), region.remote(), 0, 1, &into, {}).error(), refused);
  EXPECT_EQ(post_compare_swap(vci(0), region.remote(), 0, 5, 1, &into, {}).error(), refused);
  expect_posted(post_fetch_add(vci(0), region.remote(), 0, 1, nullptr, {}));
  job_.settle();
  EXPECT_EQ(words[0], 6u);
}

TEST_F(EngineTest, AssignmentFreesTheOldObject) {
  alignas(8) std::uint64_t words[2] = {5, 6};
  Region region = job_.at(1).add_region(words, 8);
  const RemoteRegion old = region.remote();
  Region other = job_.at(1).add_region(words + 1, 8);
  region = std::move(other);
  CompletionQueue mine = queue(0);
  std::uint64_t before = 0;
  expect_posted(post_fetch_add(vci(0), old, 0, 1, &before, telling(mine)));
  EXPECT_EQ(next(mine).status.code(), Errc::kInvalidArgument);
  EXPECT_EQ(words[0], 5u);
}

TEST_F(EngineTest, ARegionThatIsGoneIsRefused) {
  alignas(8) std::uint64_t word = 5;
  RemoteRegion gone;
  {
    const Region region = job_.at(1).add_region(&word, sizeof word);
    gone = region.remote();
  }
  const Region another = job_.at(1).add_region(&word, sizeof word);  // in its place
  CompletionQueue mine = queue(0), there = queue(1);
  std::uint64_t before = 0;
  expect_posted(post_fetch_add(vci(0), gone, 0, 1, &before, telling(mine)));
  EXPECT_EQ(next(mine).status.code(), Errc::kInvalidArgument);
  expect_posted(
      post_put(vci(0), gone, 0, &before, 8, telling(mine), there.register_remote().value()));
  job_.settle();
  EXPECT_EQ(word, 5u);
  EXPECT_FALSE(there.pop());
}

TEST_F(EngineTest, AHandlerRunsWithNoLockHeldAndMayPost) {
  struct State {
    EngineTest* test;
    int calls = 0;
    std::byte answer{3};
  } state{this};
  auto handler = std::move(
      Handler::create(
          job_.at(1).domain,
          [](const Completion& completion, void* of) {
            auto& self = *static_cast<State*>(of);
            ++self.calls;
            // The lane's lock is free: this would wait for it forever.
            self.test->vci(1).inside().vci().exclusively([] {});
            expect_is(post_send(self.test->vci(1), completion.rank, 4, &self.answer, 1, {}),
                      Post::done);
            free_buffer(completion.buffer);
          },
          &state)
          .value());
  CompletionQueue received = queue(0);
  std::byte into{};
  expect_posted(post_recv(vci(0), 1, 4, &into, 1, telling(received)));
  expect_is(post_am(vci(0), 1, handler.register_remote().value(), 0, "abc", 3, {}), Post::done);
  EXPECT_TRUE(next(received).status.ok());
  EXPECT_EQ(state.calls, 1);
  EXPECT_EQ(into, std::byte{3});
  EXPECT_TRUE(handler.free().ok());
}

TEST_F(EngineTest, RetryMeansThatNothingHasHappened) {
  CompletionQueue sent = queue(0), received = queue(1);
  const auto from = random_bytes(400, 1);
  int posted = 0;
  while (true) {
    auto answer = post_send(vci(0), 1, 2, from.data(), from.size(), telling(sent, false));
    ASSERT_TRUE(answer);
    if (*answer == Post::retry) break;
    ASSERT_LT(++posted, 1000);
  }
  PostOptions queued = telling(sent);
  queued.queues = true;
  expect_posted(post_send(vci(0), 1, 3, from.data(), from.size(), queued));
  // Behind the waiting post, though short ones might have room.
  expect_is(post_send(vci(0), 1, 2, from.data(), 0, telling(sent, false)), Post::retry);
  EXPECT_GE(vci(0).inside().counts().behind, 1u);
  std::vector<std::byte> into(from.size());
  for (int i = 0; i < posted + 1; ++i) {
    expect_posted(
        post_recv(vci(1), 0, i < posted ? 2 : 3, into.data(), into.size(), telling(received)));
    const Completion completion = next(received);
    EXPECT_TRUE(completion.status.ok());
    EXPECT_EQ(into, from);
  }
  EXPECT_TRUE(next(sent).status.ok());
  EXPECT_FALSE(sent.pop());
  EXPECT_FALSE(received.pop());
}

TEST(EngineLimits, APostBeforeTheConnectionIsRetriedOrQueued) {
  Job job{{}};
  auto received = std::move(CompletionQueue::create(job.at(1).domain).value());
  auto sent = std::move(CompletionQueue::create(job.at(0).domain).value());
  Vci &zero = *job.at(0).vci, &one = *job.at(1).vci;
  EXPECT_EQ(*post_send(zero, 1, 0, "ab", 2), Post::retry);
  EXPECT_EQ(zero.inside().counts().no_connection, 1u);
  PostOptions options;
  options.completion = &sent;
  options.queues = true;
  const auto from = random_bytes(9000, 4);
  ASSERT_EQ(*post_send(zero, 1, 1, from.data(), 100, options), Post::posted);
  ASSERT_EQ(*post_send(zero, 1, 1, from.data(), 9000, options), Post::posted);
  std::vector<std::byte> into(9000);
  options.completion = &received;
  for (const std::uint64_t bytes : {100u, 9000u}) {
    ASSERT_EQ(*post_recv(one, 0, 1, into.data(), into.size(), options), Post::posted);
    job.settle();
    auto completion = received.pop();
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->bytes, bytes);
    EXPECT_EQ(std::memcmp(into.data(), from.data(), bytes), 0);
    EXPECT_TRUE(sent.pop());
  }
}

TEST(EngineLimits, AReceiverWithoutMemoryMakesItsSenderWaitAndLosesNothing) {
  Job::Options options;
  options.lane = {{16, 8}, 6, 3};
  Job job(options);
  job.connect_all();
  auto received = std::move(CompletionQueue::create(job.at(1).domain).value());
  Vci &zero = *job.at(0).vci, &one = *job.at(1).vci;
  std::uint32_t posted = 0;
  for (int i = 0; i < 200; ++i) {
    const auto from = random_bytes(300, posted);
    auto answer = post_send(zero, 1, 1, from.data(), 300);
    ASSERT_TRUE(answer);
    if (*answer == Post::done) ++posted;
    job.step();
  }
  EXPECT_LT(posted, 40u);
  EXPECT_GT(one.inside().counts().held, 0u);
  PostOptions telling;
  telling.completion = &received;
  std::vector<std::byte> into(300);
  for (std::uint32_t i = 0; i < posted; ++i) {
    Completion done;
    auto answer = post_recv(one, 0, 1, into.data(), 300, telling, &done);
    ASSERT_TRUE(answer);
    ASSERT_NE(*answer, Post::retry);
    if (*answer == Post::posted) job.settle();
    EXPECT_EQ(into, random_bytes(300, i)) << i;
    job.settle();
    while (received.pop()) {
    }
  }
}

TEST(EngineLimits, AReceiveForTheOneAtTheHeadNeedsNoMemory) {
  for (const bool is_offer : {false, true}) {
    SCOPED_TRACE(is_offer ? "offer" : "bytes");
    Job::Options options;
    options.lane = {{16, 8}, 6, 3};
    Job job(options);
    job.connect_all();
    auto told = std::move(CompletionQueue::create(job.at(1).domain).value());
    auto sent = std::move(CompletionQueue::create(job.at(0).domain).value());
    Vci &zero = *job.at(0).vci, &one = *job.at(1).vci;
    const auto post = [&](std::uint32_t tag, std::uint64_t bytes) {
      const auto from = random_bytes(bytes, tag);
      PostOptions telling;
      telling.completion = &sent;
      auto answer = post_send(zero, 1, tag, from.data(), bytes, telling);
      ASSERT_TRUE(answer);
      ASSERT_NE(*answer, Post::retry);
      job.settle();
    };
    // As many as there is memory for, and one more, for which there is a receive soon.
    for (int i = 0; i < (is_offer ? 6 : 3); ++i) post(1, is_offer ? 0 : 300);
    EXPECT_EQ(one.inside().counts().held, 0u);
    const std::uint64_t bytes = is_offer ? 700 : 300;
    const auto from = random_bytes(bytes, 2);
    PostOptions telling;
    telling.completion = &sent;
    ASSERT_NE(*post_send(zero, 1, 2, from.data(), bytes, telling), Post::retry);
    job.settle();
    EXPECT_GT(one.inside().counts().held, 0u);
    std::vector<std::byte> into(bytes);
    telling.completion = &told;
    ASSERT_EQ(*post_recv(one, 0, 2, into.data(), bytes, telling), Post::posted);
    job.settle();
    auto completion = told.pop();
    ASSERT_TRUE(completion);
    EXPECT_TRUE(completion->status.ok());
    EXPECT_EQ(into, from);
  }
}

/// Records that no engine writes.
TEST(EngineLimits, MadeUpRecordsEndTheirLinkOrNothing) {
  for (const std::uint64_t seed : seeds(1, 300)) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    loop::Random random(seed);
    Job job{{}};
    job.connect_all();
    auto told = std::move(CompletionQueue::create(job.at(1).domain).value());
    const RemoteCompletion number = told.register_remote().value();
    alignas(8) std::uint64_t words[2] = {1, 2};
    const Region region = job.at(1).add_region(words, sizeof words);
    PacketLink& link = *job.at(0).links.back();
    for (int i = 0; i < 10; ++i) {
      const auto kind = static_cast<RecordKind>(random.below(kRecordKinds + 2));
      const std::uint32_t rest[] = {number, number + 1, 0, static_cast<std::uint32_t>(seed % 64),
                                    (1u << 24) - 1};
      // No address of an offer: a peer may state the place of its own memory, and the network
      // checks it.
      const bool is_offer = kind == RecordKind::send_offer || kind == RecordKind::am_offer;
      const auto bytes = random_bytes(random.below(is_offer ? 16 : 60), seed + 7);
      const PacketHeader header{
          first_word(kind, rest[random.below(5)]),
          random.one_in(2) ? region.remote().number : static_cast<std::uint32_t>(random.next()),
          random.one_in(2) ? region.remote().number : static_cast<std::uint32_t>(random.next())};
      if (!link.failure().ok() || *link.post(header, bytes) == net::Post::retry) break;
      job.step();
    }
    job.settle();
    while (auto completion = told.pop()) free_buffer(completion->buffer);
    for (auto& links : {&job.at(0).links, &job.at(1).links})
      for (auto& one : *links) one->end(Errc::kPeerDown);
    job.settle();
  }
}

TEST(EngineLimits, AnUnawaitedAnswerEndsTheLink) {
  Job job{{}};
  job.connect_all();
  PacketLink& link = *job.at(0).links.back();
  ASSERT_EQ(*link.post({first_word(RecordKind::fetched, 0), 0, 5}, {}), net::Post::done);
  job.settle();
  EXPECT_EQ(job.at(1).links.front()->failure(), Status(Errc::kProtocol));
}

TEST(EngineLimits, AnAnswerCountsFromTheAwaitedPeerOnly) {
  Job::Options options;
  options.size = 3;
  Job job(options);
  job.connect_all();
  auto sent = std::move(CompletionQueue::create(job.at(0).domain).value());
  const auto from = random_bytes(900, 1);
  PostOptions telling;
  telling.completion = &sent;
  ASSERT_EQ(*post_send(*job.at(0).vci, 1, 0, from.data(), 900, telling), Post::posted);
  job.settle();
  ASSERT_EQ(job.at(0).vci->inside().awaited().count(), 1u);
  // The first number that there is, from rank 2 to rank 0.
  ASSERT_EQ(
      *job.at(2).links.front()->post({first_word(RecordKind::fetched, 0), 0, 1u << 20 | 1}, {}),
      net::Post::done);
  job.settle();
  EXPECT_FALSE(sent.pop());
  EXPECT_EQ(job.at(0).vci->inside().awaited().count(), 1u);
  for (auto& link : job.at(0).links) link->end(Errc::kPeerDown);
  job.settle();
  EXPECT_TRUE(sent.pop());
}

TEST(EngineLimits, AFetchedMessageIsThereThoughItsSenderCanNotBeNotified) {
  Job job{{}};
  job.connect_all();
  Vci &zero = *job.at(0).vci, &one = *job.at(1).vci;
  auto received = std::move(CompletionQueue::create(job.at(1).domain).value());
  const auto from = random_bytes(900, 1);
  std::vector<std::byte> into(900);
  PostOptions telling;
  telling.completion = &received;
  ASSERT_EQ(*post_recv(one, 0, 0, into.data(), 900, telling), Post::posted);
  for (int i = 0; i < 100; ++i) {  // to the last cell
    (void)post_send(one, 0, 1, from.data(), 0);
    job.wire.settle();
    (void)one.progress();
  }
  ASSERT_EQ(*post_send(zero, 1, 0, from.data(), 900), Post::posted);
  for (int i = 0; i < 20; ++i) {
    job.wire.settle();
    (void)one.progress();
  }
  EXPECT_FALSE(received.pop());  // the answer has no room, and its operation waits with it
  job.at(1).links.front()->end(Errc::kPeerDown);
  (void)one.progress();
  auto completion = received.pop();
  ASSERT_TRUE(completion);
  EXPECT_TRUE(completion->status.ok());
  EXPECT_EQ(into, from);
  for (auto& link : job.at(0).links) link->end(Errc::kPeerDown);
}

TEST(EngineLimits, ADeadPeerEndsItsPendingOperations) {
  Job job{{}};
  job.connect_all();
  auto told = std::move(CompletionQueue::create(job.at(0).domain).value());
  Vci& zero = *job.at(0).vci;
  PostOptions options;
  options.completion = &told;
  const auto from = random_bytes(9000, 4);
  std::vector<std::byte> into(10);
  ASSERT_EQ(*post_send(zero, 1, 1, from.data(), 9000, options), Post::posted);
  ASSERT_EQ(*post_recv(zero, 1, 1, into.data(), 10, options), Post::posted);
  job.settle();
  EXPECT_FALSE(told.pop());
  for (auto& link : job.at(0).links)
    if (&job.at(0).links.back() == &link) link->end(Errc::kPeerDown);
  job.settle();
  for (int i = 0; i < 2; ++i) {
    auto completion = told.pop();
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->status.code(), Errc::kPeerDown);
    EXPECT_EQ(completion->rank, 1);
  }
  EXPECT_EQ(post_send(zero, 1, 1, from.data(), 1).error().code(), Errc::kPeerDown);
  ASSERT_EQ(*post_recv(zero, 1, 1, into.data(), 10, options), Post::posted);
  job.settle();
  auto completion = told.pop();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status.code(), Errc::kPeerDown);
}

// Sends and active messages, of one buffer and of two.
TEST_F(EngineTest, PostsWithTheMoreFlagTravelTogether) {
  CompletionQueue received = queue(1), heard = queue(1);
  const RemoteCompletion there = heard.register_remote().value();
  const auto from = random_bytes(40, 5);
  const Buffer both[] = {{from.data(), 10}, {from.data() + 10, 30}};
  PostOptions more;
  more.more_follow = true;
  const auto coalesced = [&] { return vci(0).inside().packets().counts().coalesced; };
  expect_is(post_send(vci(0), 1, 1, from.data(), 40, more), Post::done);
  expect_is(post_send(vci(0), 1, 1, both, more), Post::done);
  expect_is(post_am(vci(0), 1, there, 1, from.data(), 40, more), Post::done);
  EXPECT_EQ(coalesced(), 2u);
  expect_is(post_am(vci(0), 1, there, 1, both), Post::done);
  EXPECT_EQ(coalesced(), 3u);
  for (int i = 0; i < 2; ++i) {
    std::vector<std::byte> into(40);
    expect_posted(post_recv(vci(1), 0, 1, into.data(), into.size(), telling(received)));
    EXPECT_TRUE(next(received).status.ok());
    EXPECT_EQ(into, from);
    const Completion message = next(heard);
    ASSERT_EQ(message.bytes, 40u);
    EXPECT_EQ(std::memcmp(message.buffer, from.data(), 40), 0);
    free_buffer(message.buffer);
  }
}

}  // namespace
}  // namespace larklane::msg
