// Ordinary messages of communicators, between processes on a network inside one process.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "msg/protocol/by_tag.hpp"
#include "msg/protocol/communicator.hpp"
#include "unit/communicator_job.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint64_t kLengths[] = {0, 1, 100, kEager, kEager + 1, 5000};

class CommunicatorTest : public CommunicatorBase, public testing::WithParamInterface<Lanes> {
 protected:
  CommunicatorTest() : CommunicatorBase(options_of(GetParam())) {}
};
INSTANTIATE_TEST_SUITE_P(On, CommunicatorTest, testing::Values(Lanes::one, Lanes::by_tag), name_of);

TEST_P(CommunicatorTest, AMessageMatchesItsReceiveInEitherOrder) {
  const auto all = open_all(1);
  for (const bool is_expected : {true, false})
    for (const Mode mode : {Mode::standard, Mode::synchronous})
      for (const unsigned to : {0u, 1u})
        for (const std::uint64_t bytes : kLengths) {
          SCOPED_TRACE(std::to_string(bytes) + (is_expected ? " expected" : " unexpected"));
          auto from = random_bytes(bytes, bytes + 1);
          std::vector<std::byte> into(bytes);
          Pending* received = nullptr;
          if (is_expected) received = &receive(*all[to], 0, 7, bytes_of(into));
          Pending* const sent = send(*all[0], static_cast<int>(to), 7, bytes_of(from), mode);
          EXPECT_EQ(sent == nullptr, mode == Mode::standard && bytes <= eager());
          if (!is_expected) {
            job_.settle();
            if (sent != nullptr) {
              EXPECT_FALSE(is_done(*sent));
            }
            received = &receive(*all[to], 0, 7, bytes_of(into));
          }
          const Outcome there = finish(received);
          EXPECT_TRUE(there.status.ok());
          EXPECT_FALSE(there.is_cancelled);
          EXPECT_EQ(there.envelope.source, 0);
          EXPECT_EQ(there.envelope.tag, 7u);
          EXPECT_EQ(there.envelope.bytes, bytes);
          EXPECT_TRUE(finish(sent).status.ok());
          EXPECT_EQ(into, from);
        }
}

/// Nothing of the message before shows.
TEST_P(CommunicatorTest, ADoneReceivesOperationCarriesTheNextOne) {
  const auto all = open_all(1);
  Pending* spare = nullptr;
  const auto next = [&](std::uint32_t tag, UserBytes to) {
    Pending* const posted = *all[1]->receive(0, tag, to, spare);
    if (GetParam() == Lanes::one && spare != nullptr) {
      EXPECT_EQ(posted, spare);
    } else if (spare != nullptr) {
      release(*spare);
    }
    spare = posted;
    EXPECT_FALSE(is_done(*spare));
  };
  const auto end = [&] {
    for (int i = 0; i < 100'000 && !is_done(*spare); ++i) job_.step();
    EXPECT_TRUE(is_done(*spare)) << "nothing comes";
    return outcome(*spare);
  };
  for (const std::uint64_t bytes : kLengths) {
    SCOPED_TRACE(bytes);
    auto from = random_bytes(bytes + 1, bytes + 1);
    std::vector<std::byte> into(bytes);
    next(1, bytes_of(into));
    EXPECT_TRUE(Communicator::cancel(*spare));
    EXPECT_TRUE(end().is_cancelled);
    next(2, bytes_of(into));
    Pending* sent = send(*all[0], 1, 2, bytes_of(from));
    EXPECT_EQ(end().status.code(), Errc::kSizeMismatch);
    EXPECT_TRUE(finish(sent).status.ok());
    next(3, bytes_of(into));
    sent = send(*all[0], 1, 3, {from.data(), bytes});
    const Outcome whole = end();
    EXPECT_TRUE(whole.status.ok());
    EXPECT_FALSE(whole.is_cancelled);
    EXPECT_EQ(whole.envelope.tag, 3u);
    EXPECT_EQ(whole.envelope.bytes, bytes);
    EXPECT_TRUE(finish(sent).status.ok());
    EXPECT_TRUE(std::equal(into.begin(), into.end(), from.begin()));
  }
  release(*spare);
}

TEST_P(CommunicatorTest, CommunicatorsDoNotMix) {
  const auto one = open_all(1), two = open_all(2);
  std::uint64_t first = 11, second = 22;
  send(*one[0], 1, 3, bytes_of(first));
  send(*two[0], 1, 3, bytes_of(second));
  job_.settle();
  expect_value(*two[1], kAnySource, kAnyTag, 22);
  expect_value(*one[1], 0, 3, 11);
}

TEST_P(CommunicatorTest, WildcardsGetMessagesInTheirOrder) {
  const auto all = open_all(1);
  for (const bool is_posted_first : {false, true}) {
    std::vector<std::uint64_t> values(30), into(30);
    std::iota(values.begin(), values.end(), 0);
    std::vector<Pending*> posted;
    const auto post = [&] {
      for (std::uint64_t& value : into)
        posted.push_back(&receive(*all[1], kAnySource, kAnyTag, bytes_of(value)));
    };
    if (is_posted_first) post();
    for (std::uint64_t& value : values)
      send(*all[0], 1, static_cast<std::uint32_t>(value % 5), bytes_of(value));
    job_.settle();
    if (!is_posted_first) post();
    for (Pending* const one : posted) EXPECT_TRUE(finish(one).status.ok());
    EXPECT_EQ(into, values);
  }
}

TEST_P(CommunicatorTest, AMessageWithoutRoomIsCopiedAndKeepsItsPlace) {
  const auto all = open_all(1);
  constexpr std::uint64_t kMessages = 3000;
  std::vector<std::byte> from(300), into(300);
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    std::memcpy(from.data(), &i, sizeof i);
    EXPECT_EQ(send(*all[0], 1, 1, bytes_of(from)), nullptr);
    if (i == 0) job_.step();
    if (i % 50 == 0) {  // room in the ring, while others wait
      job_.wire.settle();
      (void)engine(1).progress_all();
    }
  }
  EXPECT_FALSE(engine(0).is_quiet());
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(finish(&receive(*all[1], 0, 1, bytes_of(into))).status.ok());
    std::uint64_t number = 0;
    std::memcpy(&number, into.data(), sizeof number);
    ASSERT_EQ(number, i);
  }
}

TEST_P(CommunicatorTest, TwentyThousandUnexpectedMessagesDoNotHideALaterOne) {
  const auto all = open_all(1);
  std::vector<std::byte> from(400), into(400);
  std::uint64_t value = 5;
  for (int i = 0; i < 20'000; ++i) {
    EXPECT_EQ(send(*all[0], 1, 1, bytes_of(from)), nullptr);
    if (i % 100 == 0) job_.step();
  }
  send(*all[0], 1, 2, bytes_of(value));
  expect_value(*all[1], 0, 2, 5);
  for (int i = 0; i < 20'000; ++i) {
    Pending& one = receive(*all[1], i % 2 == 0 ? kAnySource : 0, 1, bytes_of(into));
    ASSERT_TRUE(finish(&one).status.ok());
  }
  EXPECT_EQ(all[1]->match_counts().waiting, 0u);
}

TEST_P(CommunicatorTest, AProbeShowsWhatAReceiveGets) {
  const auto all = open_all(1);
  std::uint64_t values[] = {1, 2, 3}, got = 0;
  Envelope seen{};
  EXPECT_FALSE(all[1]->look(kAnySource, kAnyTag, &seen));
  EXPECT_EQ(all[1]->take(0, 6, &seen), nullptr);
  for (std::uint64_t& value : values)
    send(*all[0], 1, static_cast<std::uint32_t>(5 + value), bytes_of(value));
  job_.settle();
  EXPECT_FALSE(all[1]->look(1, 6, &seen));
  ASSERT_TRUE(all[1]->look(kAnySource, 7, &seen));
  EXPECT_EQ(seen.source, 0);
  EXPECT_EQ(seen.tag, 7u);
  EXPECT_EQ(seen.bytes, sizeof values[0]);
  Taken* const taken = all[1]->take(0, kAnyTag, &seen);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(seen.tag, 6u);
  expect_value(*all[1], 0, kAnyTag, 2);
  all[1]->close();
  const Outcome end = finish(*Communicator::receive(*taken, bytes_of(got)));
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(end.envelope.tag, 6u);
  EXPECT_EQ(got, 1u);
}

TEST_P(CommunicatorTest, AProbeThatFoundNothingFindsALaterMessage) {
  const auto all = open_all(1);
  Envelope seen{};
  for (std::uint64_t value = 1; value <= 5; ++value) {
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(all[1]->look(0, kAnyTag, &seen));
    EXPECT_EQ(all[1]->take(0, kAnyTag, &seen), nullptr);
    send(*all[0], 1, 3, bytes_of(value));
    job_.settle();
    ASSERT_TRUE(all[1]->look(0, kAnyTag, &seen));
    expect_value(*all[1], 0, kAnyTag, value);
  }
}

TEST_P(CommunicatorTest, TakenLongAndSynchronousMessagesCompleteTheirSends) {
  const auto all = open_all(1);
  for (const std::uint64_t bytes : kLengths) {
    auto from = random_bytes(bytes, 3);
    std::vector<std::byte> into(bytes);
    Pending* const sent = send(*all[0], 1, 1, bytes_of(from), Mode::synchronous);
    job_.settle();
    Envelope seen{};
    Taken* const taken = all[1]->take(0, 1, &seen);
    ASSERT_NE(taken, nullptr);
    EXPECT_EQ(seen.bytes, bytes);
    EXPECT_TRUE(finish(*Communicator::receive(*taken, bytes_of(into))).status.ok());
    EXPECT_TRUE(finish(sent).status.ok());
    EXPECT_EQ(into, from);
  }
}

TEST_P(CommunicatorTest, ATooShortReceiveReportsTheMessagesLength) {
  const auto all = open_all(1);
  for (const bool is_expected : {true, false})
    for (const std::uint64_t bytes : {kEager, kEager + 1}) {
      auto from = random_bytes(bytes, 3);
      std::vector<std::byte> into(bytes - 1);
      Pending* received = nullptr;
      if (is_expected) received = &receive(*all[1], 0, 1, bytes_of(into));
      Pending* const sent = send(*all[0], 1, 1, bytes_of(from));
      job_.settle();
      if (!is_expected) received = &receive(*all[1], 0, 1, bytes_of(into));
      const Outcome end = finish(received);
      EXPECT_EQ(end.status.code(), Errc::kSizeMismatch);
      EXPECT_EQ(end.envelope.bytes, bytes);
      EXPECT_TRUE(finish(sent).status.ok());
      EXPECT_EQ(into, std::vector<std::byte>(bytes - 1));
    }
}

TEST_P(CommunicatorTest, ACancelledReceiveGetsNothing) {
  const auto all = open_all(1);
  std::uint64_t value = 4, cancelled = 0;
  Pending& gone = receive(*all[1], 0, 1, bytes_of(cancelled));
  EXPECT_TRUE(Communicator::cancel(gone));
  EXPECT_TRUE(finish(&gone).is_cancelled);
  send(*all[0], 1, 1, bytes_of(value));
  expect_value(*all[1], 0, 1, 4);
  EXPECT_EQ(cancelled, 0u);
  Pending& late = receive(*all[1], 0, 1, bytes_of(cancelled));
  send(*all[0], 1, 1, bytes_of(value));
  job_.settle();
  EXPECT_FALSE(Communicator::cancel(late));
  EXPECT_FALSE(finish(&late).is_cancelled);
}

TEST_P(CommunicatorTest, ASendThatWaitsForRoomIsCancelledInItsPlace) {
  const auto all = open_all(1);
  for (const unsigned cancelled : {0u, 1u, 3u, 4u}) {  // in the middle, and at both ends
    std::vector<std::uint64_t> values(5);
    std::iota(values.begin(), values.end(), 10 * cancelled);
    auto from = random_bytes(5000, 1);
    std::vector<std::byte> filling(400);
    for (int i = 0; i < 200; ++i) send(*all[0], 1, 9, bytes_of(filling));
    std::vector<Pending*> sent;
    for (unsigned i = 0; i < values.size(); ++i)
      sent.push_back(i == 1 ? send(*all[0], 1, 1, bytes_of(from))
                            : send(*all[0], 1, 1, bytes_of(values[i]), Mode::synchronous));
    EXPECT_TRUE(Communicator::cancel(*sent[cancelled]));
    ASSERT_TRUE(is_done(*sent[cancelled]));
    EXPECT_FALSE(Communicator::cancel(*sent[cancelled])) << "it is over";
    EXPECT_TRUE(finish(sent[cancelled]).is_cancelled);
    std::uint64_t last = 99;
    send(*all[0], 1, 1, bytes_of(last));
    std::vector<std::byte> into(from.size());
    for (int i = 0; i < 200; ++i)
      EXPECT_TRUE(finish(&receive(*all[1], 0, 9, bytes_of(filling))).status.ok());
    for (unsigned i = 0; i < values.size(); ++i) {
      if (i == cancelled) continue;
      if (i == 1)
        EXPECT_TRUE(finish(&receive(*all[1], 0, 1, bytes_of(into))).status.ok());
      else
        expect_value(*all[1], 0, 1, values[i]);
      EXPECT_FALSE(finish(sent[i]).is_cancelled);
    }
    expect_value(*all[1], 0, 1, last);
  }
}

TEST_P(CommunicatorTest, ACommunicatorOfFirstSightIsAdopted) {
  std::uint64_t value = 9;
  std::vector<std::byte> from = random_bytes(5000, 1), into(5000);
  std::optional<Creation> here(engine(1)), other(engine(1));
  Communicator& sender = open(0, 1);
  send(sender, 1, 1, bytes_of(value));
  Pending* const sent = send(sender, 1, 2, bytes_of(from));
  job_.settle();
  other.reset();
  Communicator& receiver = open(1, 1);
  here.reset();
  expect_value(receiver, 0, 1, 9);
  EXPECT_TRUE(finish(&receive(receiver, 0, 2, bytes_of(into))).status.ok());
  EXPECT_EQ(into, from);
  EXPECT_TRUE(finish(sent).status.ok());
  EXPECT_EQ(engine(1).open(id_of(1), {}, 0, {}).error().code(), Errc::kAlreadyActive);
}

TEST_P(CommunicatorTest, OneThatNoCreationOpensIsDropped) {
  std::uint64_t value = 9;
  for (const bool has_creation : {true, false}) {
    const std::uint64_t number = has_creation ? 1 : 2;
    std::optional<Creation> creation;
    if (has_creation) creation.emplace(engine(1));
    Communicator& sender = open(0, number);
    send(sender, 1, 1, bytes_of(value));
    job_.settle();
    creation.reset();
    Communicator& receiver = open(1, number);  // another one, as it were
    Envelope seen{};
    EXPECT_FALSE(receiver.look(kAnySource, kAnyTag, &seen));
    send(sender, 1, 1, bytes_of(value));
    job_.settle();
    EXPECT_FALSE(receiver.look(kAnySource, kAnyTag, &seen));
  }
}

TEST_P(CommunicatorTest, NumbersAreUsedAgainForOthers) {
  for (std::uint64_t number = 1; number <= 500; ++number) {
    const auto all = open_all(number);
    std::uint64_t unread = 1;
    send(*all[0], 1, 1, bytes_of(number));
    send(*all[0], 1, 2, bytes_of(unread));  // never received
    send(*all[1], 1, 3, bytes_of(number));
    expect_value(*all[1], 0, 1, number);
    expect_value(*all[1], 1, 3, number);
    all[number % 2]->close();
    if (number % 3 == 0) job_.settle();
    all[1 - number % 2]->close();
  }
  job_.settle();
  // Few numbers were needed
  Connection& to = *engine(0).connection(*engine(0).lane_of(0).value(), 1);
  auto next = to.announce(id_of(1000), 0, false);
  ASSERT_TRUE(next);
  EXPECT_LT(*next, 100u);
}

TEST_P(CommunicatorTest, APostedReceiveOutlivesTheClose) {
  const auto all = open_all(1);
  std::uint64_t value = 6, into = 0, cancelled = 0;
  Pending& one = receive(*all[1], 0, 1, bytes_of(into));
  Pending& other = receive(*all[1], 0, 2, bytes_of(cancelled));
  send(*all[0], 1, 4, bytes_of(value));
  job_.settle();
  EXPECT_EQ(all[1]->match_counts().waiting, 3u);
  all[1]->close();
  send(*all[0], 1, 3, bytes_of(value));
  job_.settle();
  EXPECT_EQ(all[1]->match_counts().waiting, 2u) << "messages without a receive are dropped";
  send(*all[0], 1, 1, bytes_of(value));
  EXPECT_TRUE(finish(&one).status.ok());
  EXPECT_EQ(into, 6u);
  all[0]->close();
  job_.settle();
  EXPECT_TRUE(Communicator::cancel(other));
  EXPECT_TRUE(finish(&other).is_cancelled);
}

TEST_P(CommunicatorTest, ThePeersDeathEndsWhatOnlyItCouldComplete) {
  const auto all = open_all(1);
  std::uint64_t value = 1, into = 0;
  auto from = random_bytes(5000, 1);
  send(*all[0], 1, 1, bytes_of(value));
  job_.settle();
  Pending& received = receive(*all[0], 1, 1, bytes_of(into));
  Pending* const offered = send(*all[0], 1, 2, bytes_of(from));
  Pending* const synchronous = send(*all[0], 1, 2, bytes_of(value), Mode::synchronous);
  job_.settle();
  for (auto& link : job_.at(0).links) link->end(Errc::kPeerDown);
  EXPECT_EQ(finish(&received).status.code(), Errc::kPeerDown);
  EXPECT_EQ(finish(offered).status.code(), Errc::kPeerDown);
  EXPECT_EQ(finish(synchronous).status.code(), Errc::kPeerDown);
  EXPECT_EQ(all[0]->send(1, 1, bytes_of(value), Mode::standard).error().code(), Errc::kPeerDown);
  EXPECT_EQ(finish(&receive(*all[0], 1, 1, bytes_of(into))).status.code(), Errc::kPeerDown);
  EXPECT_EQ(all[0]->failure_of(1).code(), Errc::kPeerDown);
}

TEST_P(CommunicatorTest, AProgressHookMovesMessagesToo) {
  const auto all = open_all(1);
  std::uint64_t value = 3, into = 0;
  send(*all[0], 1, 1, bytes_of(value));
  Pending& received = receive(*all[1], 0, 1, bytes_of(into));
  for (int i = 0; i < 100 && !is_done(received); ++i) {
    job_.connect();
    job_.wire.settle();
    (void)engine(0).try_progress(16, 65536);
    (void)engine(1).try_progress(16, 65536);
  }
  EXPECT_TRUE(finish(&received).status.ok());
  EXPECT_EQ(into, 3u);
}

class PollTest : public CommunicatorBase, public testing::WithParamInterface<std::uint32_t> {
 protected:
  PollTest() : CommunicatorBase(over_shm_with(GetParam())) {}
  static Job::Options over_shm_with(std::uint32_t first_cells) {
    Job::Options options = over_shm();
    options.cells = 1024;
    options.first_cells = first_cells;
    return options;
  }
};

// By the queue, then by a watched ring, in several laps.
TEST_P(PollTest, APollFindsWhatHasCome) {
  const auto all = open_all(1);
  std::uint64_t first = 0;
  send(*all[0], 1, 1, bytes_of(first));
  expect_value(*all[1], 0, 1, first);
  for (std::uint64_t value = 1; value <= 3000; ++value) {
    std::uint64_t into = 0;
    Pending& one = receive(*all[1], 0, 1, bytes_of(into));
    send(*all[0], 1, 1, bytes_of(value));
    for (int i = 0; i < 10 && !is_done(one); ++i) (void)poll(one);
    ASSERT_TRUE(is_done(one)) << value;
    release(one);
    ASSERT_EQ(into, value);
  }
}
INSTANTIATE_TEST_SUITE_P(FirstCells, PollTest, testing::Values(0u, 128u));

TEST_F(CommunicatorShmTest, PollsOfAnIdleLaneTakeATurnNowAndThen) {
  Communicator& one = *open_all(1)[1];
  // A thread of its own: earlier tests' lanes have taught this one to look at others.
  std::thread([&] { (void)one.poll(); }).join();
  const vci::Vci& vci = engine(1).first_lane(job_.at(1).vci->inside()).vci();
  const std::uint64_t before = vci.counts().polls;
  std::thread([&] {
    for (int i = 0; i < 1024; ++i) (void)one.poll();
  }).join();
  EXPECT_GE(vci.counts().polls - before, 2u);
  EXPECT_LE(vci.counts().polls - before, 100u);
}

TEST_F(CommunicatorShmTest, MessagesOfAllLengths) {
  const auto all = open_all(1);
  for (const Mode mode : {Mode::standard, Mode::synchronous})
    for (const std::uint64_t bytes :
         {std::uint64_t{8}, kEager, kEager + 1, std::uint64_t{1} << 20}) {
      auto from = random_bytes(bytes, 2);
      std::vector<std::byte> into(bytes);
      Pending* const sent = send(*all[0], 1, 1, bytes_of(from), mode);
      EXPECT_TRUE(finish(&receive(*all[1], kAnySource, 1, bytes_of(into))).status.ok());
      EXPECT_TRUE(finish(sent).status.ok());
      EXPECT_EQ(into, from);
    }
}

/// Both networks: rings at stalls.
class StallTest : public CommunicatorBase, public testing::WithParamInterface<const char*> {
 protected:
  static constexpr std::uint64_t kStallNs = 200'000;
  StallTest() : CommunicatorBase(options()) {}
  static Job::Options options() {
    const std::string name = GetParam();
    Job::Options options = name == "loop"
                               ? Job::Options{}
                               : options_of(name == "shm" ? Lanes::one : Lanes::by_tag, over_shm());
    options.stall_ns = kStallNs;
    return options;
  }
  /// Rank `rank` waits for some stalls' time; others do nothing. @return rings
  std::size_t rings_of(int rank) {
    job_.at(rank).rung.clear();
    const std::uint64_t until = now_ns() + 20 * kStallNs;
    while (now_ns() < until) {
      job_.wire.settle();
      (void)engine(rank).progress_all();
      engine(rank).look_for_stalls();
    }
    return job_.at(rank).rung.size();
  }
  void serve(int rank) {
    job_.wire.settle();
    while (engine(rank).serve_all() != 0) job_.wire.settle();
  }
};
INSTANTIATE_TEST_SUITE_P(Networks, StallTest, testing::Values("loop", "shm", "lanes_by_tag"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(StallTest, AWaitingSenderRingsOnceAStall) {
  const auto all = open_all(1);
  std::uint64_t value = 5;
  send(*all[0], 1, 3, bytes_of(value));
  expect_value(*all[1], 0, 3, 5);
  EXPECT_EQ(rings_of(0), 0u);  // it waits for nothing
  Pending* const first = send(*all[0], 1, 3, bytes_of(value), Mode::synchronous);
  EXPECT_EQ(rings_of(0), 1u);
  EXPECT_EQ(job_.at(0).rung, std::vector{1});
  serve(1);
  EXPECT_EQ(rings_of(0), 0u);  // the message lies there, without a receive
  Pending* const second = send(*all[0], 1, 3, bytes_of(value), Mode::synchronous);
  EXPECT_EQ(rings_of(0), 1u);
  EXPECT_EQ(rings_of(1), 0u);
  serve(1);
  send(*all[1], 0, 4, bytes_of(value));
  EXPECT_EQ(rings_of(0), 0u);  // that message says that the peer has read all
  expect_value(*all[0], 1, 4, 5);
  expect_value(*all[1], 0, 3, 5);
  expect_value(*all[1], 0, 3, 5);
  EXPECT_TRUE(finish(first).status.ok());
  EXPECT_TRUE(finish(second).status.ok());
}

TEST_P(StallTest, AWaitingReceiverRingsUntilTheBacklogIsOut) {
  constexpr std::uint64_t kMessages = 200;
  const auto all = open_all(1);
  job_.settle();
  std::uint64_t value = 0;
  send(*all[0], 1, 3, bytes_of(value));
  expect_value(*all[1], 0, 3, 0);
  for (std::uint64_t nth = 1; nth <= kMessages; ++nth) send(*all[0], 1, 3, bytes_of(nth));
  for (std::uint64_t got = 1; got <= kMessages;) {
    std::uint64_t into = 0;
    Pending& received = receive(*all[1], 0, 3, bytes_of(into));
    serve(1);
    while (!is_done(received)) {
      std::size_t rings = 0;
      for (int time = 0; time < 50 && rings == 0 && !is_done(received); ++time) rings = rings_of(1);
      if (is_done(received)) break;
      ASSERT_GT(rings, 0u) << got;
      ASSERT_EQ(job_.at(1).rung.front(), 0);
      serve(0);
    }
    EXPECT_EQ(into, got++);
    release(received);
  }
  EXPECT_EQ(rings_of(1), 0u);
}

}  // namespace
}  // namespace larklane::msg
