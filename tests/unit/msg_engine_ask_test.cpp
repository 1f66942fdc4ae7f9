// Long messages that the receiver asks the sender to write, on a network inside one process.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/fault/fault.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

/// A network on which the software of both sides carries out every transfer.
Job::Options asking() {
  Job::Options options;
  options.network.limits.is_progress_manual = true;
  options.network.limits.immediates_max = 0;
  options.network.limits.write_bytes_max = 1000;  // of longer ones the last part has the immediate
  return options;
}

class AskTest : public JobTest {
 protected:
  AskTest() : JobTest(asking()), sent_(queue(0)), heard_(queue(1)) {}

  PostOptions telling(CompletionObject& object, const Region* region = nullptr) {
    PostOptions options = msg::telling(object);
    options.region = region;
    return options;
  }
  std::uint64_t reads(int rank) {
    return vci(rank).inside().vci().counts().operations_of(vci::Work::Kind::read);
  }

  CompletionQueue sent_, heard_;
};

TEST_F(AskTest, ALongMessageIsWrittenByItsSender) {
  std::uint64_t seed = 1;
  for (const std::uint64_t bytes : {kEager + 1, std::uint64_t{1000}, std::uint64_t{33'333}})
    for (const bool is_expected : {true, false}) {
      SCOPED_TRACE(std::to_string(bytes) + (is_expected ? " expected" : " unexpected"));
      const auto from = random_bytes(bytes, ++seed);
      std::vector<std::byte> into(bytes + 1);
      const auto receive = [&] {
        expect_posted(post_recv(vci(1), 0, 7, into.data(), into.size(), telling(heard_)));
      };
      if (is_expected) receive();
      expect_posted(post_send(vci(0), 1, 7, from.data(), bytes, telling(sent_)));
      if (!is_expected) {
        job_.settle();
        receive();
      }
      const Completion there = next(heard_), here = next(sent_);
      EXPECT_TRUE(there.status.ok());
      EXPECT_EQ(there.bytes, bytes);
      EXPECT_EQ(there.rank, 0);
      EXPECT_TRUE(here.status.ok());
      EXPECT_EQ(std::memcmp(into.data(), from.data(), bytes), 0);
      EXPECT_EQ(into.back(), std::byte{}) << "no more than was sent";
    }
  EXPECT_EQ(reads(1), 0u);
  for (const int rank : {0, 1}) {
    EXPECT_FALSE(job_.at(rank).engine->has_registered());
    EXPECT_EQ(vci(rank).inside().awaited().count(), 0u);
  }
}

TEST_F(AskTest, ARegionOfTheSendersIsUsedAsItIs) {
  auto from = random_bytes(5000, 3);
  std::vector<std::byte> into(3000);
  const Region region = job_.at(0).add_region(from.data(), from.size());
  expect_posted(post_recv(vci(1), 0, 7, into.data(), 3000, telling(heard_)));
  expect_posted(post_send(vci(0), 1, 7, &from[1300], 3000, telling(sent_, &region)));
  EXPECT_FALSE(job_.at(0).engine->has_registered());
  EXPECT_TRUE(next(heard_).status.ok());
  EXPECT_TRUE(next(sent_).status.ok());
  EXPECT_EQ(std::memcmp(into.data(), &from[1300], 3000), 0);
  EXPECT_EQ(reads(1), 0u);
}

// A peer that was asked could write there when the receive has failed.
TEST_F(AskTest, IntoARegionOfTheReceiversItIsRead) {
  const auto from = random_bytes(3000, 3);
  std::vector<std::byte> into(5000);
  const Region region = job_.at(1).add_region(into.data(), into.size());
  expect_posted(post_recv(vci(1), 0, 7, &into[70], 3000, telling(heard_, &region)));
  expect_posted(post_send(vci(0), 1, 7, from.data(), 3000, telling(sent_)));
  EXPECT_TRUE(next(heard_).status.ok());
  EXPECT_TRUE(next(sent_).status.ok());
  EXPECT_EQ(std::memcmp(&into[70], from.data(), 3000), 0);
  EXPECT_GT(reads(1), 0u);
}

TEST_F(AskTest, ALongActiveMessageIsWrittenByItsSender) {
  const RemoteCompletion number = heard_.register_remote().value();
  const auto from = random_bytes(7000, 3);
  expect_posted(post_am(vci(0), 1, number, 5, from.data(), from.size(), telling(sent_)));
  const Completion there = next(heard_);
  ASSERT_EQ(there.bytes, from.size());
  EXPECT_EQ(there.tag, 5u);
  EXPECT_EQ(std::memcmp(there.buffer, from.data(), from.size()), 0);
  free_buffer(there.buffer);
  EXPECT_TRUE(next(sent_).status.ok());
  EXPECT_EQ(reads(1), 0u);
}

TEST_F(AskTest, AReceiveThatIsTooShortAsksForNothing) {
  const auto from = random_bytes(3000, 3);
  std::vector<std::byte> into(2999);
  expect_posted(post_recv(vci(1), 0, 7, into.data(), into.size(), telling(heard_)));
  expect_posted(post_send(vci(0), 1, 7, from.data(), from.size(), telling(sent_)));
  const Completion there = next(heard_);
  EXPECT_EQ(there.status.code(), Errc::kSizeMismatch);
  EXPECT_EQ(there.bytes, from.size());
  EXPECT_TRUE(next(sent_).status.ok());
  EXPECT_EQ(into, std::vector<std::byte>(2999));
}

TEST_F(AskTest, AMessageOfSeveralBuffersIsRead) {
  const auto from = random_bytes(3000, 3);
  std::vector<std::byte> into(3000);
  const Buffer pieces[] = {{from.data(), 1000}, {&from[1000], 2000}};
  expect_posted(post_recv(vci(1), 0, 7, into.data(), into.size(), telling(heard_)));
  expect_posted(post_send(vci(0), 1, 7, pieces, telling(sent_)));
  EXPECT_TRUE(next(heard_).status.ok());
  EXPECT_TRUE(next(sent_).status.ok());
  EXPECT_EQ(into, from);
  EXPECT_GT(reads(1), 0u);
}

TEST_F(AskTest, OfSeveralBuffersTheOnlyOneThatIsNotEmptyIsWritten) {
  const auto from = random_bytes(3000, 3);
  std::vector<std::byte> into(3000);
  const Buffer pieces[] = {{nullptr, 0}, {from.data(), from.size()}, {&from[10], 0}};
  expect_posted(post_recv(vci(1), 0, 7, into.data(), into.size(), telling(heard_)));
  expect_posted(post_send(vci(0), 1, 7, pieces, telling(sent_)));
  EXPECT_TRUE(next(heard_).status.ok());
  const Completion here = next(sent_);
  EXPECT_TRUE(here.status.ok());
  EXPECT_EQ(here.bytes, from.size());
  EXPECT_EQ(here.buffer, nullptr) << "the first";
  EXPECT_EQ(into, from);
  EXPECT_EQ(reads(1), 0u);
}

// A receiver without a place for an ask reads instead: it must not wait for operations that wait
// for it.
TEST(AskPlaces, OffersThatTakeAllOfBothStopNothing) {
  constexpr std::uint32_t kOperations = 8;
  for (const int to : {0, 1}) {
    Job::Options options = asking();
    options.lane.operations = kOperations;
    Job job(options);
    job.connect_all();
    std::vector<CompletionQueue> heard, sent;
    std::vector<RemoteCompletion> numbers;
    for (const int rank : {0, 1}) {
      heard.push_back(std::move(CompletionQueue::create(job.at(rank).domain).value()));
      sent.push_back(std::move(CompletionQueue::create(job.at(rank).domain).value()));
      numbers.push_back(heard.back().register_remote().value());
    }
    const auto from = random_bytes(3000, 1);
    for (const int rank : {0, 1})
      for (std::uint32_t i = 0; i < kOperations; ++i) {
        PostOptions told;
        told.completion = &sent[static_cast<std::size_t>(rank)];
        told.queues = true;
        const int peer = to == 0 ? rank : 1 - rank;
        ASSERT_EQ(*post_am(*job.at(rank).vci, peer, numbers[static_cast<std::size_t>(peer)], i,
                           from.data(), from.size(), told),
                  Post::posted);
      }
    job.settle();
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (std::uint32_t i = 0; i < kOperations; ++i) {
        const auto there = heard[rank].pop();
        ASSERT_TRUE(there) << i;
        EXPECT_EQ(std::memcmp(there->buffer, from.data(), from.size()), 0);
        free_buffer(there->buffer);
        EXPECT_TRUE(sent[rank].pop()) << i;
      }
  }
}

// The network goes on with a write that has begun, though its memory is not registered any more.
TEST(AskEnds, AnAskedWriteEndsWhenThePeerCanNotWriteAnyMore) {
  Job::Options options = asking();
  options.decorate = [](std::unique_ptr<net::Fabric> fabric, int) {
    return std::make_unique<fault::Fabric>(std::move(fabric), fault::Plan{});
  };
  Job job(options);
  job.connect_all();
  auto heard = std::move(CompletionQueue::create(job.at(1).domain).value());
  const auto from = random_bytes(3000, 3);
  std::vector<std::byte> into(from.size());
  PostOptions told;
  told.completion = &heard;
  ASSERT_TRUE(post_recv(*job.at(1).vci, 0, 0, into.data(), into.size(), told));
  ASSERT_TRUE(post_recv(*job.at(1).vci, 0, 1, into.data(), into.size(), told));
  ASSERT_TRUE(post_send(*job.at(0).vci, 1, 0, from.data(), from.size()));
  for (int i = 0; i < 100 && job.at(1).vci->inside().awaited().count() == 0; ++i) {
    job.wire.settle();
    (void)job.at(0).vci->progress();
    job.wire.settle();
    (void)job.at(1).vci->progress();
  }
  PacketLink& link = *job.at(1).links.front();
  link.end(Errc::kPeerDown);
  EXPECT_FALSE(link.is_quiet());
  EXPECT_FALSE(job.at(1).engine->has_registered()) << "the peer begins nothing more";
  EXPECT_EQ(heard.pop()->tag, 1u) << "nobody was asked for it";
  EXPECT_FALSE(heard.pop());
  EXPECT_EQ(job.at(1).vci->inside().awaited().count(), 1u);
  for (int i = 0; i < 100 && !link.is_quiet(); ++i) job.step();
  const auto there = heard.pop();
  ASSERT_TRUE(there);
  EXPECT_EQ(there->tag, 0u);
  const std::vector<std::byte> at_the_end = into;
  job.settle();
  EXPECT_EQ(into, at_the_end);
  EXPECT_EQ(job.wire.take_violations().size(), 1u) << "the key of what the peer writes later";
}

// The sender's write fails, and its link does not: the receiver gets the error.
TEST(AskEnds, AWriteThatFailsEndsBoth) {
  const auto from = random_bytes(900, 3);
  Job::Options options = asking();
  options.decorate = [](std::unique_ptr<net::Fabric> fabric, int rank) {
    fault::Plan plan;
    if (rank == 0)
      plan.faults = {{.call = fault::Call::write_immediate, .what = fault::What::fail, .nth = 1}};
    return std::make_unique<fault::Fabric>(std::move(fabric), plan);
  };
  Job job(options);
  job.connect_all();
  auto heard = std::move(CompletionQueue::create(job.at(1).domain).value());
  auto sent = std::move(CompletionQueue::create(job.at(0).domain).value());
  std::vector<std::byte> into(from.size());
  PostOptions receiving, sending;
  receiving.completion = &heard;
  sending.completion = &sent;
  ASSERT_TRUE(post_recv(*job.at(1).vci, 0, 0, into.data(), into.size(), receiving));
  ASSERT_TRUE(post_send(*job.at(0).vci, 1, 0, from.data(), from.size(), sending));
  job.settle();
  for (CompletionQueue* const queue : {&heard, &sent}) {
    const auto end = queue->pop();
    ASSERT_TRUE(end);
    EXPECT_FALSE(end->status.ok());
  }
}

// A receive that has asked ends with the link, in any state of the sender.
TEST(AskEnds, ASenderThatDiesEndsAnAskedWriteOnce) {
  const auto from = random_bytes(8000, 3);
  int whole = 0, cut = 0;
  for (int turns = 0; turns < 300; turns += 3)
    for (const bool is_active : {false, true}) {
      SCOPED_TRACE(std::to_string(turns) + " turns");
      Job::Options options = asking();
      options.network.turns_per_poll = 0;  // the turns below alone
      Job job(options);
      job.connect_all();
      auto heard = std::move(CompletionQueue::create(job.at(1).domain).value());
      const RemoteCompletion number = heard.register_remote().value();
      std::vector<std::byte> into(from.size());
      PostOptions told;
      told.completion = &heard;
      if (is_active) {
        ASSERT_TRUE(post_am(*job.at(0).vci, 1, number, 0, from.data(), from.size()));
      } else {
        ASSERT_TRUE(post_recv(*job.at(1).vci, 0, 0, into.data(), into.size(), told));
        ASSERT_TRUE(post_send(*job.at(0).vci, 1, 0, from.data(), from.size()));
      }
      for (int i = 0; i < turns; ++i) {
        (void)job.wire.turn(1);
        for (const int rank : {0, 1}) (void)job.at(rank).engine->progress_all();
      }
      job.wire.kill_process(1);  // rank 0
      for (auto& link : job.at(1).links) link->end(Errc::kPeerDown);
      job.settle();
      const auto there = heard.pop();
      EXPECT_TRUE(there || is_active);
      if (there) {
        there->status.ok() ? ++whole : ++cut;
        if (is_active) {
          EXPECT_EQ(there->buffer != nullptr, there->status.ok());
          free_buffer(there->buffer);
        }
      }
      EXPECT_FALSE(heard.pop());
      EXPECT_FALSE(job.at(1).engine->has_registered());
      EXPECT_EQ(job.at(1).vci->inside().awaited().count(), 0u);
    }
  EXPECT_GT(whole, 5);
  EXPECT_GT(cut, 5);
}

// --- peers that send made-up records -----------------------------------------------------------

constexpr std::uint32_t kFirstNumber = 1u << 20 | 1;  // of the waiting operation: the first place,
                                                      // once

/// Rank 0 has offered rank 1 a message without a receive; the records that follow are made up.
struct MadeUp {
  explicit MadeUp(std::span<const Buffer> pieces = {}) {
    job.connect_all();
    PostOptions options;
    options.completion = &sent;
    const Buffer whole[] = {{from.data(), from.size()}};
    EXPECT_TRUE(pieces.empty() ? post_send(*job.at(0).vci, 1, 7, whole[0].start, 3000, options)
                               : post_send(*job.at(0).vci, 1, 7, pieces, options));
    job.settle();
    EXPECT_EQ(job.at(0).vci->inside().awaited().count(), 1u);
  }
  PacketLink& link(int rank) {
    return rank == 0 ? *job.at(0).links.back() : *job.at(1).links.front();
  }
  net::RemoteMemory place() { return {region.remote().address, region.remote().key}; }
  /// Rank 1 asks.
  void ask(std::uint32_t number, std::span<const std::byte> payload) {
    ASSERT_EQ(*link(1).post({first_word(RecordKind::ask, 0), 0, number}, payload), net::Post::done);
    job.settle();
  }
  void ask(std::uint32_t number, const Asked& asked) {
    ask(number, std::as_bytes(std::span(&asked, 1)));
  }
  /// Rank 1 reports to rank 0 that it has written.
  void notify(std::uint32_t number) {
    vci::Work work;
    work.kind = vci::Work::Kind::small_immediate;
    work.complete = [](net::Operation&, Status) {};
    work.link = &link(1).net_link();
    work.immediate = *link(1).immediate_of_notification(number);
    work.transfer.remote = {of_sender.remote().address, of_sender.remote().key};
    work.small_bytes = 8;
    job.at(1).vci->inside().vci().post(work);
    job.settle();
  }

  Job job{asking()};
  std::vector<std::byte> from = random_bytes(3000, 3), memory = std::vector<std::byte>(3000);
  CompletionQueue sent = std::move(CompletionQueue::create(job.at(0).domain).value());
  Region region = job.at(1).add_region(memory.data(), memory.size());
  std::uint64_t word = 0;
  Region of_sender = job.at(0).add_region(&word, sizeof word);
};

TEST(AskMadeUp, AnAskedMessageIsWrittenOnce) {
  MadeUp made;
  // No operation waits for the notification: rank 1 ends its link by it, when the bytes are there.
  made.ask(kFirstNumber, {made.place(), kFirstNumber});
  EXPECT_EQ(made.memory, made.from);
  const auto there = made.sent.pop();
  ASSERT_TRUE(there);
  EXPECT_TRUE(there->status.ok());
  EXPECT_EQ(made.link(1).failure(), Status(Errc::kProtocol));
  EXPECT_TRUE(made.link(0).failure().ok());
}

TEST(AskMadeUp, AMessageThatWasNotOfferedIsNotWritten) {
  for (const std::uint32_t wrong : {0u, 1u, kFirstNumber + 1, kFirstNumber + (1u << 20)}) {
    MadeUp made;
    made.ask(kFirstNumber, {made.place(), wrong});
    EXPECT_EQ(made.link(0).failure(), Status(Errc::kProtocol)) << wrong;
    const auto there = made.sent.pop();
    ASSERT_TRUE(there) << "it ends with the link";
    EXPECT_EQ(there->status, Status(Errc::kProtocol));
    EXPECT_FALSE(made.job.at(0).engine->has_registered());
    EXPECT_EQ(made.memory, std::vector<std::byte>(3000));
  }
}

TEST(AskMadeUp, ANumberThatNoNotificationHasIsRefused) {
  for (const std::uint32_t wrong : {0u, 1u << 20, (1u << 16) - 32 + 1, (1u << 20) - 1}) {
    MadeUp made;
    made.ask(wrong, {made.place(), kFirstNumber});
    EXPECT_EQ(made.link(0).failure(), Status(Errc::kProtocol)) << wrong;
    EXPECT_EQ(made.memory, std::vector<std::byte>(3000));
  }
}

TEST(AskMadeUp, ARecordThatIsTooShortIsRefused) {
  MadeUp made;
  const Asked asked{made.place(), kFirstNumber};
  made.ask(kFirstNumber, std::as_bytes(std::span(&asked, 1)).first(sizeof asked - 1));
  EXPECT_EQ(made.link(0).failure(), Status(Errc::kProtocol));
}

TEST(AskMadeUp, OfSeveralPiecesNoneCanBeAskedFor) {
  const auto from = random_bytes(3000, 1);
  const Buffer pieces[] = {{from.data(), 1000}, {&from[1000], 2000}};
  MadeUp made(pieces);
  made.ask(kFirstNumber, {made.place(), kFirstNumber});
  EXPECT_EQ(made.link(0).failure(), Status(Errc::kProtocol));
  EXPECT_TRUE(made.sent.pop()) << "it ends with the link";
  EXPECT_FALSE(made.job.at(0).engine->has_registered());
}

TEST(AskMadeUp, AnAtomicIsNoOffer) {
  MadeUp made;
  std::uint64_t before = 0;
  PostOptions options;
  options.completion = &made.sent;
  // Its answer waits: rank 1 makes no progress.
  ASSERT_TRUE(post_fetch_add(*made.job.at(0).vci, made.region.remote(), 0, 1, &before, options));
  const Asked asked{made.place(), 1u << 20 | 2};
  ASSERT_EQ(*made.link(1).post({first_word(RecordKind::ask, 0), 0, kFirstNumber},
                               std::as_bytes(std::span(&asked, 1))),
            net::Post::done);
  for (int i = 0; i < 100; ++i) {
    made.job.wire.settle();
    (void)made.job.at(0).engine->progress_all();
  }
  EXPECT_EQ(made.link(0).failure(), Status(Errc::kProtocol));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(made.sent.pop()) << "it ends with the link";
}

// A wrong key: the write that the sender was asked for fails.
TEST(AskMadeUp, AWriteThatIsRefusedEndsTheSend) {
  MadeUp made;
  made.ask(kFirstNumber, {{made.place().address, made.place().key + 4711}, kFirstNumber});
  const auto there = made.sent.pop();
  ASSERT_TRUE(there);
  EXPECT_FALSE(there->status.ok());
  EXPECT_FALSE(made.job.wire.take_violations().empty());
  EXPECT_FALSE(made.job.at(0).engine->has_registered());
}

// Its operation may have failed with the link, and records that have arrived are still delivered.
TEST(AskMadeUp, LateRecordsOnAFailedLinkChangeNothing) {
  MadeUp made;
  auto heard = std::move(CompletionQueue::create(made.job.at(0).domain).value());
  const RemoteCompletion number = heard.register_remote().value();
  made.link(0).end(Errc::kPeerDown);
  made.notify(0);
  made.ask(kFirstNumber, {made.place(), kFirstNumber});
  ASSERT_EQ(*made.link(1).post({first_word(RecordKind::fetched, 0), 0, kFirstNumber}, {}),
            net::Post::done);
  ASSERT_EQ(*made.link(1).post({first_word(RecordKind::am, number), 5, 0}, {}), net::Post::done);
  made.job.settle();
  EXPECT_EQ(made.link(0).failure(), Status(Errc::kPeerDown));
  EXPECT_TRUE(heard.pop());
}

TEST(AskMadeUp, AnUnawaitedNotificationEndsTheLink) {
  for (const std::uint32_t number : {0u, 1u, 60'000u}) {  // the first is an offer's
    MadeUp made;
    made.notify(number);
    EXPECT_EQ(made.link(0).failure(), Status(Errc::kProtocol)) << number;
    EXPECT_TRUE(made.sent.pop()) << "it ends with the link";
    EXPECT_FALSE(made.sent.pop());
  }
}

}  // namespace
}  // namespace larklane::msg
