// Which work requests are signalled, when a post has to be made again, how operations end.

#include "pair.hpp"

namespace larklane::verbs {
namespace {

/// With ibv_wr_* and thread domains, and without.
class SendQueueTest : public Pair, public testing::WithParamInterface<bool> {
 public:
  SendQueueTest() {
    if (GetParam()) device.offer_extended();
  }
};
INSTANTIATE_TEST_SUITE_P(Posts, SendQueueTest, testing::Bool(), [](const auto& is_extended) {
  return is_extended.param ? "extended" : "plain";
});

TEST_P(SendQueueTest, EachLaneHasAThreadDomainAndPostsByTheDevicesCalls) {
  start();
  std::array<Note, 30> notes;
  for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted);
  settle();
  EXPECT_EQ(counters().extended, GetParam() ? counters().signalled + counters().unsignalled : 0u);
  EXPECT_EQ(device.thread_domains, GetParam() ? 2u : 0u);
  for (const auto& [number, pair] : device.pairs)
    EXPECT_EQ(device.parent_domains.contains(pair->domain), GetParam());
  const std::string chosen = fabric->limits().choices;
  EXPECT_NE(chosen.find(GetParam() ? "ibv_wr_*, a thread domain" : "ibv_post_send, no thread"),
            std::string::npos)
      << chosen;
  for (auto& link : links) link.reset();
  for (auto& endpoint : endpoints) endpoint.reset();
  EXPECT_EQ(device.thread_domains, 0u);
  EXPECT_TRUE(device.parent_domains.empty());
}

TEST_P(SendQueueTest, LoneOperationsAreSignalledAndNeedNoFlush) {
  start();
  for (int i = 0; i < 1000; ++i) {
    Note note;
    ASSERT_EQ(must(write(note)), net::Post::posted);
    settle();
    ASSERT_EQ(note.ends, 1);
    ASSERT_TRUE(note.status.ok());
  }
  EXPECT_EQ(counters().signalled, 1000u);
  EXPECT_EQ(counters().unsignalled, 0u);
  EXPECT_EQ(counters().flushes, 0u);
}

TEST_P(SendQueueTest, OfABurstEverySixteenthIsSignalledAndTheRestIsFlushed) {
  start();
  std::array<Note, 100> notes;
  for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted);
  EXPECT_EQ(counters().signalled, 7u);  // 1, 17, 33, 49, 65, 81, 97
  EXPECT_EQ(counters().unsignalled, 93u);
  settle();
  for (const Note& note : notes) ASSERT_EQ(note.ends, 1);
  EXPECT_EQ(counters().signalled, 8u);
  EXPECT_EQ(counters().flushes, 1u);
}

TEST_P(SendQueueTest, TheDeclaredLastIsSignalledAndSparesTheFlush) {
  start();
  ASSERT_TRUE(endpoints[1]->reserve_immediates(20).ok());
  for (const bool is_prepared : {false, true}) {
    const std::uint64_t signalled = counters().signalled, unsignalled = counters().unsignalled;
    std::array<Note, 5> notes;
    for (Note& note : notes) {
      note.wakes = false;  // or it can't be prepared
      note.is_last = &note == &notes.back();
      const net::PostPrepared prepared = links[0]->prepare(transfer(16), 0, note);
      ASSERT_NE(prepared, nullptr);
      device.post_send_error = note.is_last ? ENOMEM : 0;
      ASSERT_EQ(must(is_prepared ? prepared(note) : write(note)),
                note.is_last ? net::Post::retry : net::Post::posted);
    }
    device.post_send_error = 0;
    Note& last = notes.back();
    ASSERT_EQ(must(is_prepared ? links[0]->prepare(transfer(16), 0, last)(last) : write(last)),
              net::Post::posted);
    settle();
    for (const Note& note : notes) ASSERT_TRUE(note.ends == 1 && note.status.ok());
    EXPECT_EQ(counters().signalled, signalled + 2) << is_prepared;  // the first one, and the last
    EXPECT_EQ(counters().unsignalled, unsignalled + 3) << is_prepared;
  }
  EXPECT_EQ(counters().flushes, 0u);
}

TEST_P(SendQueueTest, ARefusedLastLeavesNoOtherSignalled) {
  start();
  ASSERT_TRUE(endpoints[1]->reserve_immediates(30).ok());
  std::array<Note, 20> notes;
  Note refused;
  refused.is_last = true;
  const auto post = [&](Note& note) {
    note.wakes = false;
    return must(links[0]->prepare(transfer(16), 0, note)(note));
  };
  for (std::size_t i = 0; i < 17; ++i) ASSERT_EQ(post(notes[i]), net::Post::posted);
  device.post_send_error = ENOMEM;
  ASSERT_EQ(post(refused), net::Post::retry);
  device.post_send_error = 0;
  ASSERT_EQ(device.run(1), 1u);
  ASSERT_EQ(must(endpoints[0]->poll(1)), 1u);  // the last signalled one has not completed
  for (std::size_t i = 17; i < 20; ++i) ASSERT_EQ(post(notes[i]), net::Post::posted);
  std::uint32_t signalled = 0;
  for (const FakeRequest& request : queue(0).requests)
    signalled += (request.work.send_flags & IBV_SEND_SIGNALED) != 0;
  EXPECT_EQ(signalled, 1u);  // notes[16]
  settle();
  for (const Note& note : notes) ASSERT_TRUE(note.ends == 1 && note.status.ok());
}

TEST_P(SendQueueTest, NothingIsLeftBehindByBurstsOfAnyLength) {
  start();
  for (std::size_t length = 1; length <= 127; ++length) {
    std::vector<Note> notes(length);
    for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted) << length;
    settle();
    for (const Note& note : notes) ASSERT_EQ(note.ends, 1) << length;
  }
}

TEST_P(SendQueueTest, FullIsRetryAndGoesOnAfterAPoll) {
  start();
  std::vector<Note> notes(127);
  for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted);
  Note late;
  ASSERT_EQ(must(write(late)), net::Post::retry);
  EXPECT_EQ(counters().full, 1u);
  settle();
  ASSERT_EQ(late.ends, 0);
  ASSERT_EQ(must(write(late)), net::Post::posted);
  settle();
  EXPECT_EQ(late.ends, 1);
}

TEST_P(SendQueueTest, AFullDeviceQueueIsRetry) {
  start();
  Note first, second;
  ASSERT_EQ(must(write(first)), net::Post::posted);
  device.post_send_error = ENOMEM;
  ASSERT_EQ(must(write(second)), net::Post::retry);
  device.post_send_error = 0;
  ASSERT_EQ(must(write(second)), net::Post::posted);
  settle();
  EXPECT_EQ(first.ends + second.ends, 2);
}

TEST_P(SendQueueTest, ManyRandomBurstsAndPollsEndEveryOperationOnce) {
  start();
  std::uint32_t state = 12345;
  const auto random = [&](std::uint32_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
  };
  std::vector<Note> notes(20000);
  std::size_t next = 0;
  while (next < notes.size()) {
    for (std::uint32_t burst = random(40); burst > 0 && next < notes.size(); --burst) {
      if (must(write(notes[next])) == net::Post::retry) break;
      ++next;
    }
    device.run(random(60));
    ASSERT_LE(must(endpoints[0]->poll(3)), 3u);
  }
  settle();
  for (const Note& note : notes) ASSERT_EQ(note.ends, 1);
  EXPECT_LT(counters().signalled, counters().unsignalled);
}

TEST_P(SendQueueTest, PollServesNoMoreThanAskedFor) {
  start();
  std::array<Note, 40> notes;
  for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted);
  device.run();
  for (int turn = 0; turn < 33; ++turn) ASSERT_EQ(must(endpoints[0]->poll(1)), 1u);
  EXPECT_EQ(must(endpoints[0]->poll(1)), 0u);  // the flush has not completed
  device.run();
  EXPECT_EQ(must(endpoints[0]->poll(64)), 7u);
}

TEST_P(SendQueueTest, SmallDataIsCopiedAtOnce) {
  start();
  std::array<std::byte, 8> small{};
  small.fill(std::byte{7});
  Note note;
  ASSERT_EQ(must(links[0]->write_small(small, target_memory->remote(), note)), net::Post::posted);
  EXPECT_NE(queue(0).requests[0].work.send_flags & IBV_SEND_INLINE, 0u);
  small.fill(std::byte{9});
  settle();
  EXPECT_EQ(target[0], std::byte{7});
  EXPECT_EQ(target[7], std::byte{7});
  EXPECT_EQ(target[8], std::byte{0});
}

TEST_P(SendQueueTest, SmallDataIsCopiedAtOnceByADeviceWithoutInline) {
  device.inline_max = 0;
  start();
  std::array<Note, 100> notes;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    const std::array<std::byte, 2> small{static_cast<std::byte>(i), std::byte{1}};
    auto to = target_memory->remote();
    to.address += 2 * i;
    ASSERT_EQ(must(links[0]->write_small(small, to, notes[i])), net::Post::posted);
  }
  EXPECT_EQ(queue(0).requests[0].work.send_flags & IBV_SEND_INLINE, 0u);
  settle();
  for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(target[2 * i], static_cast<std::byte>(i));
}

TEST_P(SendQueueTest, ReadsHaveAQueueOfTheirOwnAndAllAreSignalled) {
  start();
  target[3] = std::byte{42};
  std::array<Note, 31> notes;
  for (Note& note : notes) ASSERT_EQ(must(links[0]->read(transfer(16), note)), net::Post::posted);
  Note late;
  EXPECT_EQ(must(links[0]->read(transfer(16), late)), net::Post::retry);
  EXPECT_EQ(must(links[0]->write(transfer(0), late)), net::Post::posted);  // not held up
  EXPECT_EQ(queue(0).requests.size(), 1u);
  EXPECT_EQ(queue(0, true).requests.size(), 31u);
  settle();
  EXPECT_EQ(source[3], std::byte{42});
  for (const Note& note : notes) ASSERT_EQ(note.ends, 1);
  EXPECT_EQ(counters().flushes, 0u);
}

TEST_P(SendQueueTest, ARefusedPostEndsPostedOperations) {
  start();
  std::array<Note, 20> notes;
  for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted);
  Note refused;
  device.post_send_error = EINVAL;
  EXPECT_EQ(write(refused).error(), Status(Errc::kSystem, EINVAL));
  settle();
  EXPECT_EQ(refused.ends, 0);
  for (const Note& note : notes) {
    ASSERT_EQ(note.ends, 1);
    ASSERT_EQ(note.status, Status(Errc::kSystem, EINVAL));
  }
}

TEST_P(SendQueueTest, ARefusedFlushEndsItsOperations) {
  start();
  std::array<Note, 3> notes;
  for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted);
  device.run();
  device.post_send_error = ENOMEM;
  settle();
  EXPECT_TRUE(notes[0].status.ok());
  for (const Note& note : notes) ASSERT_EQ(note.ends, 1);
  EXPECT_EQ(notes[2].status.code(), Errc::kSystem);
}

TEST_P(SendQueueTest, AnOperationMayPostAndMayEndItsLink) {
  start();
  struct Chain : Note {
    static void again(net::Operation& operation, Status status) {
      ended(operation, status);
      auto& chain = static_cast<Chain&>(operation);
      if (chain.ends < 10) {
        ASSERT_EQ(must(chain.test->write(chain)), net::Post::posted);
      } else {
        chain.test->links[0].reset();
      }
    }
    SendQueueTest* test;
  } chain;
  chain.complete = &Chain::again;
  chain.test = this;
  ASSERT_EQ(must(write(chain)), net::Post::posted);
  settle();
  EXPECT_EQ(chain.ends, 10);
  EXPECT_EQ(counters().flushes, 0u);  // posted before the flush was decided on
}

TEST_P(SendQueueTest, ALinkInThePlaceOfAClosedOneGetsNoneOfItsCompletions) {
  start();
  std::array<Note, 3> notes;
  for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted);
  device.fail(queue(0), IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(must(endpoints[0]->poll(3)), 3u);  // completions of the flushed ones are left
  links[0].reset();
  links[1].reset();
  connect();
  Note note;
  ASSERT_EQ(must(write(note)), net::Post::posted);
  settle();
  EXPECT_EQ(note.ends, 1);
  EXPECT_TRUE(note.status.ok());
}

}  // namespace
}  // namespace larklane::verbs
