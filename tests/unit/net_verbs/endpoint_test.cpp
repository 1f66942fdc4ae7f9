// Immediates and their receives, sleeping, and the end of an endpoint.

#include <poll.h>

#include "base/log.hpp"
#include "pair.hpp"

namespace larklane::verbs {
namespace {

class EndpointTest : public Pair {
 protected:
  ~EndpointTest() override { set_log_sink({}); }
  Result<net::Post> ring(std::uint32_t immediate, Note& note) {
    return links[0]->write_immediate(transfer(0), immediate, note);
  }
  template <std::size_t kCount>
  void ring_all() {
    std::array<Note, kCount> notes;
    for (Note& note : notes) ASSERT_EQ(must(ring(1, note)), net::Post::posted);
    settle(0);
  }
};

TEST_F(EndpointTest, ConsumedReceivesAreReplenishedBeforeAnyCallback) {
  start();
  struct Checking final : net::Receiver {
    void on_immediate(std::uint32_t) override {
      std::size_t posted = 0;  // or arrived, and not taken from the device yet
      for (const FakeReceiveQueue* queue : FakeDevice::get().receive_queues)
        posted += queue->posted;
      for (const FakeCompletionQueue* queue : FakeDevice::get().completion_queues) {
        posted += queue->completions.size();
      }
      ++count;
      EXPECT_GE(posted, 40u);
      EXPECT_LT(posted, 40u + 16);
    }
    int count = 0;
  } receiver;
  links[1].reset();
  endpoints[1] = must(fabric->open_endpoint(receiver));
  links[0].reset();
  connect();
  ASSERT_TRUE(endpoints[1]->reserve_immediates(40).ok());
  for (int round = 0; round < 5; ++round) {
    ring_all<40>();
    while (must(endpoints[1]->poll(1)) != 0) {
    }
  }
  EXPECT_EQ(receiver.count, 200);
  EXPECT_EQ(device.not_ready, 0u);
  EXPECT_EQ(counters(1).receives, 40u + 208u);     // 200 replaced, in chains of 16
  EXPECT_EQ(counters(1).receive_posts, 3u + 13u);  // the first 40 in chains, too
}

TEST_F(EndpointTest, ReceivesThatAreAheadNeverOverfillTheQueue) {
  device.attributes.max_srq_wr = 20;
  start();
  ASSERT_TRUE(endpoints[1]->reserve_immediates(19).ok());
  for (int round = 0; round < 5; ++round) {
    ring_all<19>();
    settle(1);
  }
  EXPECT_EQ(device.not_ready, 0u);
  EXPECT_EQ(counters(1).immediates, 95u);
}

TEST_F(EndpointTest, AnImmediateTooManyEndsTheLink) {
  start();
  ASSERT_TRUE(endpoints[1]->reserve_immediates(1).ok());
  std::array<Note, 2> notes;
  for (Note& note : notes) ASSERT_EQ(must(ring(7, note)), net::Post::posted);
  settle();
  EXPECT_TRUE(notes[0].status.ok());
  EXPECT_EQ(notes[1].status, Status(Errc::kTransfer, IBV_WC_RNR_RETRY_EXC_ERR));
  EXPECT_EQ(queue(0).to_send.rnr_retry, 0);
}

TEST_F(EndpointTest, ImmediatesCarryAll32Bits) {
  start();
  ASSERT_TRUE(endpoints[1]->reserve_immediates(2).ok());
  std::array<Note, 2> notes;
  ASSERT_EQ(must(ring(0x1234'5678, notes[0])), net::Post::posted);
  ASSERT_EQ(must(ring(0xffff'ffff, notes[1])), net::Post::posted);
  settle(0);
  settle(1);
  EXPECT_EQ(heard[1].all, (std::vector<std::uint32_t>{0x1234'5678, 0xffff'ffff}));
}

TEST_F(EndpointTest, ReservesNoMoreThanTheDeviceHasAndLogsIt) {
  start();
  EXPECT_EQ(fabric->limits().immediates_max, 1000u);
  std::string said;
  set_log_sink([&](LogLevel, std::string_view message) { said = message; });
  ASSERT_TRUE(endpoints[0]->reserve_immediates(900).ok());
  EXPECT_EQ(endpoints[0]->reserve_immediates(101).code(), Errc::kNoMemory);
  EXPECT_NE(said.find("101"), std::string::npos) << said;
  EXPECT_NE(said.find("900 of 1000"), std::string::npos) << said;
  ASSERT_TRUE(endpoints[0]->reserve_immediates(100).ok());
  endpoints[0]->release_immediates(500);
  ASSERT_TRUE(endpoints[0]->reserve_immediates(500).ok());
  EXPECT_EQ(counters().receives, 1000u);  // posted receives are used again
  EXPECT_EQ(endpoints[0]->reserve_immediates(0xffff'ffff).code(), Errc::kNoMemory);
}

TEST_F(EndpointTest, TakesAsManyReceivesAsAreAskedForAndAsThereIsMemoryFor) {
  device.attributes.max_srq_wr = 1 << 20;
  device.attributes.max_cqe = 1 << 22;
  start();
  EXPECT_EQ(fabric->limits().immediates_max, 32768u);
  // 64 channels of 256 cells.
  for (int channel = 0; channel < 64; ++channel)
    ASSERT_TRUE(endpoints[0]->reserve_immediates(512).ok()) << channel;
  set_log_sink([](LogLevel, std::string_view) {});
  EXPECT_EQ(endpoints[0]->reserve_immediates(1).code(), Errc::kNoMemory);

  const auto immediates_of = [](const net::FabricOptions& options) {
    std::string reason;
    auto opened = Fabric::open(options, &reason);
    return opened ? (*opened)->limits().immediates_max : 0;
  };
  net::FabricOptions many;
  many.receives_max = 100'000;
  EXPECT_EQ(immediates_of(many), 100'000u);
  device.receives_memory = 5000;
  EXPECT_EQ(immediates_of({}), 4096u);
  device.receives_memory = 100;
  EXPECT_EQ(immediates_of({}), 0u);
}

TEST_F(EndpointTest, ReleasedReceivesAreNotReplenished) {
  start();
  ASSERT_TRUE(endpoints[1]->reserve_immediates(10).ok());
  endpoints[1]->release_immediates(6);
  std::array<Note, 8> notes;
  for (Note& note : notes) ASSERT_EQ(must(ring(1, note)), net::Post::posted);
  settle(0);
  settle(1);
  EXPECT_EQ(counters(1).receives, 10u + 16u);  // the seventh takes them below 4
}

TEST_F(EndpointTest, TheCompletionQueueGrowsWithLinksAndReceives) {
  start();
  std::vector<std::unique_ptr<net::Link>> more;
  for (int i = 0; i < 60; ++i) {
    auto link = endpoints[0]->open_link();
    ASSERT_TRUE(link) << i;
    more.push_back(std::move(*link));
  }
  ASSERT_TRUE(endpoints[0]->reserve_immediates(1000).ok());
  int largest = 0;
  for (const FakeCompletionQueue* each : device.completion_queues) {
    largest = std::max(largest, each->cqe);
  }
  EXPECT_GE(largest, 61 * 160 + 1000);
}

TEST_F(EndpointTest, RefusesALinkThatTheCompletionQueueHasNoRoomFor) {
  device.attributes.max_cqe = 1000;
  start();
  set_log_sink([](LogLevel, std::string_view) {});
  std::vector<std::unique_ptr<net::Link>> more;
  for (int i = 1; i < 6; ++i) more.push_back(must(endpoints[0]->open_link()));
  EXPECT_EQ(endpoints[0]->open_link().error().code(), Errc::kNoMemory);
  more.pop_back();
  EXPECT_TRUE(endpoints[0]->open_link());
}

TEST_F(EndpointTest, RoomOfClosedLinksIsUsedAgainWithoutAPoll) {
  device.attributes.max_cqe = 1000;
  start();
  for (int i = 0; i < 100; ++i) {
    Note note;
    ASSERT_EQ(must(write(note)), net::Post::posted);
    device.fail(queue(0), IBV_WC_RETRY_EXC_ERR);
    ASSERT_EQ(must(endpoints[0]->poll(1)), 1u);
    links[0].reset();
    links[1].reset();
    connect();
  }
}

TEST_F(EndpointTest, AnEventIsSleptOnAndNoneIsMissed) {
  start();
  const auto is_readable = [&] {
    pollfd fd{endpoints[0]->wait_fd(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  };
  EXPECT_TRUE(endpoints[0]->arm(net::Wake::all));
  EXPECT_FALSE(is_readable());
  Note note;
  ASSERT_EQ(must(write(note)), net::Post::posted);
  device.run();
  EXPECT_TRUE(is_readable());
  EXPECT_FALSE(endpoints[0]->arm(net::Wake::all));  // there is something
  EXPECT_FALSE(is_readable());
  EXPECT_EQ(device.events_unacknowledged, 0u);
  EXPECT_EQ(note.ends, 0);
  EXPECT_FALSE(endpoints[0]->arm(net::Wake::all));  // still
  EXPECT_EQ(must(endpoints[0]->poll(8)), 1u);
  EXPECT_EQ(note.ends, 1);
  EXPECT_TRUE(endpoints[0]->arm(net::Wake::all));
}

/// A thread sleeps on a queue for needed completions.
class NeededTest : public EndpointTest {
 protected:
  bool is_woken(int side = 0) {
    pollfd fd{endpoints[side]->wait_fd(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  }
  static Note idle() {
    Note note;
    note.wakes = false;
    return note;
  }
};

TEST_F(NeededTest, DataWakesNoSleeper) {
  start();
  ASSERT_TRUE(endpoints[1]->reserve_immediates(2).ok());
  for (auto& endpoint : endpoints) EXPECT_TRUE(endpoint->arm(net::Wake::needed));
  Note note = idle();
  ASSERT_EQ(must(ring(1, note)), net::Post::posted);
  device.run();
  EXPECT_FALSE(is_woken(0));
  EXPECT_FALSE(is_woken(1));
  EXPECT_EQ(must(endpoints[0]->poll(8)) + must(endpoints[1]->poll(8)), 2u);
  EXPECT_EQ(note.ends, 1);
}

TEST_F(NeededTest, ASmallImmediateWakes) {
  start();
  ASSERT_TRUE(endpoints[1]->reserve_immediates(1).ok());
  EXPECT_TRUE(endpoints[1]->arm(net::Wake::needed));
  Note note = idle();
  ASSERT_EQ(must(links[0]->write_small_immediate({}, {}, 1, note)), net::Post::posted);
  device.run();
  EXPECT_TRUE(is_woken(1));
}

TEST_F(NeededTest, AWakingCompletionWakesRegardlessOfItsPostTime) {
  start();
  Note before;
  ASSERT_EQ(must(write(before)), net::Post::posted);
  EXPECT_TRUE(endpoints[0]->arm(net::Wake::needed));
  device.run();
  EXPECT_TRUE(is_woken());
  settle();
  EXPECT_TRUE(endpoints[0]->arm(net::Wake::needed));
  Note idle_one = idle(), after;
  ASSERT_EQ(must(write(idle_one)), net::Post::posted);
  device.run();  // signalled, and not polled
  EXPECT_FALSE(is_woken());
  ASSERT_EQ(must(write(after)), net::Post::posted);
  device.run();
  EXPECT_TRUE(is_woken());
  settle();
  EXPECT_EQ(after.ends, 1);
  EXPECT_TRUE(endpoints[0]->arm(net::Wake::needed));
  ASSERT_EQ(must(write(idle_one)), net::Post::posted);
  device.run();
  EXPECT_FALSE(is_woken()) << "nothing is awaited any more";
}

TEST_F(NeededTest, WorkBehindAWakingOneIsFlushedWhileOthersSleep) {
  start();
  Note first, second;
  EXPECT_TRUE(endpoints[0]->arm(net::Wake::needed));
  ASSERT_EQ(must(write(first)), net::Post::posted);
  ASSERT_EQ(must(write(second)), net::Post::posted);  // unsignalled
  for (int wakes = 0; wakes < 2; ++wakes) {
    device.run();
    EXPECT_TRUE(is_woken()) << wakes;
    while (!endpoints[0]->arm(net::Wake::needed)) (void)must(endpoints[0]->poll(8));
  }
  EXPECT_EQ(first.ends + second.ends, 2);
}

TEST_F(NeededTest, AQueueThatFillsUpWakesBeforeItIsFull) {
  start();
  std::vector<Note> notes(kWriteShape.depth, idle());
  EXPECT_TRUE(endpoints[0]->arm(net::Wake::needed));
  std::uint32_t posted = 0;
  for (; !is_woken() && must(write(notes[posted])) == net::Post::posted; ++posted) device.run();
  EXPECT_TRUE(is_woken());
  EXPECT_GT(posted, kWriteShape.depth / 2);
  settle();
  EXPECT_TRUE(endpoints[0]->arm(net::Wake::needed));
  ASSERT_EQ(must(write(notes[0])), net::Post::posted);
  device.run();
  EXPECT_FALSE(is_woken()) << "it is empty again";
}

TEST_F(EndpointTest, NoThreadSleepsWhileAFlushIsDue) {
  start();
  std::array<Note, 2> notes;
  for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted);
  device.run();
  EXPECT_EQ(must(endpoints[0]->poll(1)), 1u);
  EXPECT_FALSE(endpoints[0]->arm(net::Wake::all) && device.waiting() == 0);
  settle();
  EXPECT_EQ(notes[1].ends, 1);
}

TEST_F(EndpointTest, ABrokenCompletionQueueEndsEverythingOnce) {
  start();
  std::array<Note, 40> notes;
  for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted);
  Note read;
  ASSERT_EQ(must(links[0]->read(transfer(1), read)), net::Post::posted);
  device.is_poll_broken = true;
  EXPECT_EQ(endpoints[0]->poll(1).error(), Status(Errc::kSystem, EIO));
  for (const Note& note : notes) ASSERT_EQ(note.ends, 1);
  EXPECT_EQ(read.ends, 1);
  device.is_poll_broken = false;
  EXPECT_FALSE(endpoints[0]->poll(1));
  EXPECT_FALSE(endpoints[0]->open_link());
  EXPECT_FALSE(endpoints[0]->reserve_immediates(1).ok());
  EXPECT_FALSE(write(notes[0]));
  for (const Note& note : notes) ASSERT_EQ(note.ends, 1);
}

TEST_F(EndpointTest, AProbeTouchesNoMemoryAndReportsWhetherThePeerAnswers) {
  start();
  Note answered, lost;
  ASSERT_EQ(must(links[0]->probe(answered)), net::Post::posted);
  settle();
  EXPECT_EQ(answered.ends, 1);
  EXPECT_TRUE(answered.status.ok());
  EXPECT_TRUE(heard[1].all.empty());
  ASSERT_EQ(must(links[0]->probe(lost)), net::Post::posted);
  device.fail(queue(0), IBV_WC_RETRY_EXC_ERR);
  settle();
  EXPECT_EQ(lost.status, Status(Errc::kPeerDown, IBV_WC_RETRY_EXC_ERR));
  Note late;
  EXPECT_FALSE(links[0]->probe(late));
  EXPECT_EQ(fabric->explain(lost.status),
            "its host does not answer, or there is no way to it any more");
  EXPECT_EQ(fabric->limits().unanswered_ns / 1'000'000, 7516u);
}

TEST_F(EndpointTest, ADeviceThatIsLostEndsItsEndpoints) {
  struct Case {
    ibv_event_type type;
    const char* said;
    bool is_taken_away = false;
  };
  for (const Case& lost :
       {Case{IBV_EVENT_DEVICE_FATAL, "it has failed"}, Case{IBV_EVENT_PORT_ERR, "is down", true},
        Case{IBV_EVENT_CQ_ERR, "is lost"}, Case{IBV_EVENT_SRQ_ERR, "is lost"}}) {
    start();
    std::vector<std::string> said;
    set_log_sink([&](LogLevel, std::string_view message) { said.emplace_back(message); });
    Note note;
    ASSERT_EQ(must(write(note)), net::Post::posted);
    fabric->look();
    EXPECT_TRUE(endpoints[0]->arm(net::Wake::all));
    EXPECT_TRUE(said.empty());
    ibv_async_event event{};
    event.event_type = lost.type;
    event.element.port_num = 1;
    device.events.push_back(event);
    if (lost.is_taken_away) device.events_end = EIO;
    fabric->look();
    EXPECT_FALSE(endpoints[0]->arm(net::Wake::all));
    EXPECT_EQ(note.ends, 1);
    EXPECT_EQ(endpoints[0]->poll(1).error(), Status(Errc::kSystem, ENODEV));
    EXPECT_FALSE(endpoints[0]->open_link());
    ASSERT_GE(said.size(), 2u);
    EXPECT_NE(said.front().find(lost.said), std::string::npos) << said.front();
    device.events_end = EAGAIN;
    for (auto& link : links) link.reset();
    for (auto& endpoint : endpoints) endpoint.reset();
    target_memory.reset();
    source_memory.reset();
    set_log_sink({});
  }
}

TEST_F(EndpointTest, ReceivesThatCantBeReplenishedEndIt) {
  start();
  ASSERT_TRUE(endpoints[1]->reserve_immediates(1).ok());
  Note note;
  ASSERT_EQ(must(ring(1, note)), net::Post::posted);
  device.run();
  device.post_receive_error = EINVAL;
  EXPECT_EQ(endpoints[1]->poll(1).error(), Status(Errc::kSystem, EINVAL));
}

}  // namespace
}  // namespace larklane::verbs
