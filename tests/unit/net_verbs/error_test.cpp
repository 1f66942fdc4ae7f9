// Completions in error: the meaning of their status. An error of one of a link's operations, or
// receives, ends all operations of the link, once, and nothing else.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "net/immediate.hpp"
#include "pair.hpp"

namespace larklane::verbs {
namespace {

constexpr int kLast = IBV_WC_TM_RNDV_INCOMPLETE;

// Without a default: with a header that has one more this does not compile.
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"
constexpr Errc meaning_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return Errc::kOk;
    // No answer, or the connection has ended for a reason that is not known here.
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_WR_FLUSH_ERR:
      return Errc::kPeerDown;
    // Refused here: lengths, keys, states of this side.
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_LOC_RDD_VIOL_ERR:
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR:
    // Refused there: the peer's device has answered, so its host is up.
    case IBV_WC_BAD_RESP_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    // The device does not report the side.
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR:
    // Of tags, which we do not use.
    case IBV_WC_TM_ERR:
    case IBV_WC_TM_RNDV_INCOMPLETE:
      return Errc::kTransfer;
  }
  return Errc::kTransfer;
}
#pragma GCC diagnostic pop

Status error_of(ibv_wc_status status) { return {meaning_of(status), status}; }

class ErrorTest : public Pair, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Statuses, ErrorTest, testing::Range(IBV_WC_SUCCESS + 1, kLast + 1));

TEST_P(ErrorTest, EndsAllOnceWithTheFirstCause) {
  start();
  const auto status = static_cast<ibv_wc_status>(GetParam());
  const Status error = error_of(status);
  std::array<Note, 50> notes;
  std::array<Note, 3> reads;
  for (Note& note : notes) ASSERT_EQ(must(write(note)), net::Post::posted);
  for (Note& note : reads) ASSERT_EQ(must(links[0]->read(transfer(8), note)), net::Post::posted);
  FakeQueuePair& failing = queue(0);
  for (int i = 0; i < 5; ++i) device.carry_out(failing, FakeRequest(failing.requests.front()));
  device.fail(failing, status);
  settle();
  for (std::size_t i = 0; i < notes.size(); ++i) {
    ASSERT_EQ(notes[i].ends, 1) << i;
    // Those before it had arrived, although only the first of them completed.
    ASSERT_EQ(notes[i].status, i < 5 ? Status() : error) << i;
  }
  for (const Note& note : reads) {
    ASSERT_EQ(note.ends, 1);
    ASSERT_EQ(note.status, error);
  }
  EXPECT_EQ(links[0]->failure(), error);
  EXPECT_NE(fabric->explain(error), "");
  Note late;
  EXPECT_EQ(write(late).error(), error);
  EXPECT_EQ(links[0]->read(transfer(8), late).error(), error);
  settle();
  EXPECT_EQ(late.ends, 0);
  EXPECT_EQ(device.overruns, 0u);
}

TEST_P(ErrorTest, OfAReadItEndsTheWritesToo) {
  start();
  const auto status = static_cast<ibv_wc_status>(GetParam());
  std::array<Note, 4> notes;
  for (std::size_t i = 0; i < notes.size(); ++i)
    ASSERT_EQ(must(i < 2 ? links[0]->read(transfer(8), notes[i]) : write(notes[i])),
              net::Post::posted);
  device.fail(queue(0, true), status);
  (void)must(endpoints[0]->poll(64));
  for (const Note& note : notes) {
    ASSERT_EQ(note.ends, 1);
    ASSERT_EQ(note.status, error_of(status));
  }
  EXPECT_EQ(links[0]->failure(), error_of(status));
}

TEST(StatusTest, OfANumberThatNoHeaderHasATransferHasFailed) {
  EXPECT_TRUE(status_of(IBV_WC_SUCCESS).ok());
  for (const int number : {kLast + 1, kLast + 2, 31})
    EXPECT_EQ(status_of(static_cast<ibv_wc_status>(number)), Status(Errc::kTransfer, number));
}

constexpr std::uint32_t kReserved = 20;

/// Two links between two endpoints; the later one fails. With so many queue pairs for writes; 0:
/// one for all channels.
class ReceiveErrorTest : public Pair, public testing::WithParamInterface<std::uint32_t> {
 protected:
  void SetUp() override {
    wanted.channel_queues = GetParam();
    start();
    ASSERT_TRUE(endpoints[1]->reserve_immediates(kReserved).ok());
    carry(0);
    others = std::exchange(links, {});
    connect();
    carry(1);
  }
  void carry(std::uint16_t slot) {
    if (GetParam() == 0) return;
    links[0]->carry_only(net::ChannelHalf::send, std::nullopt, 8);
    links[1]->carry_only(net::ChannelHalf::receive, slot, 8);
  }
  /// The receiver's: its own writes go by the first one, arriving ones by the last one.
  FakeQueuePair& first_pair() { return pair(0); }
  FakeQueuePair& last_pair() { return pair(writes_count() - 1); }
  FakeQueuePair& first_of_later_link() { return pair_of(2, 0); }
  /// Operations that the receiver has posted itself.
  void post_some() {
    for (std::size_t i = 0; i < notes.size(); ++i)
      ASSERT_EQ(must(i % 5 == 0 ? links[1]->read(transfer(8), notes[i])
                                : links[1]->write(transfer(8), notes[i])),
                net::Post::posted);
  }
  void expect_ended(Status error) {
    settle(1);
    for (const Note& note : notes) {
      ASSERT_EQ(note.ends, 1);
      ASSERT_EQ(note.status, error);
    }
    expect_dead(error);
  }
  void expect_dead(Status error) {
    EXPECT_EQ(links[1]->failure(), error);
    Note late;
    EXPECT_EQ(links[1]->write(transfer(8), late).error(), error);
    EXPECT_EQ(links[1]->read(transfer(8), late).error(), error);
    EXPECT_EQ(links[1]->probe(late).error(), error);
    settle(1);
    EXPECT_EQ(late.ends, 0);
    EXPECT_TRUE(heard[1].all.empty());
    EXPECT_EQ(device.overruns, 0u);
    expect_receives();
    expect_works(others, 0);
  }
  void expect_receives() {
    std::uint32_t posted = 0;
    for (const FakeReceiveQueue* queue : device.receive_queues) posted += queue->posted;
    EXPECT_GE(posted, kReserved);
  }
  /// All that was reserved, at once.
  void expect_works(std::array<std::unique_ptr<net::Link>, 2>& these, std::uint16_t slot) {
    const std::uint32_t immediate = net::make_immediate(slot, net::run_token({7, 1}));
    std::array<Note, kReserved> writes;
    for (Note& note : writes)
      ASSERT_EQ(must(these[0]->write_immediate(transfer(8), immediate, note)), net::Post::posted);
    Note back;
    ASSERT_EQ(must(these[1]->write(transfer(8), back)), net::Post::posted);
    settle(0);
    settle(1);
    for (const Note& note : writes) {
      ASSERT_EQ(note.ends, 1);
      ASSERT_TRUE(note.status.ok());
    }
    EXPECT_EQ(back.ends, 1);
    EXPECT_TRUE(back.status.ok());
    EXPECT_EQ(heard[1].all, std::vector<std::uint32_t>(kReserved, immediate));
    heard[1].all.clear();
    EXPECT_EQ(device.not_ready, 0u);
  }

  std::array<std::unique_ptr<net::Link>, 2> others;
  std::array<Note, 25> notes;

 private:
  static std::size_t writes_count() { return std::max(GetParam(), 1u); }
  FakeQueuePair& pair(std::size_t place) { return pair_of(3, place); }
  /// Four links in the order in which they were made, each with its writes and its reads.
  FakeQueuePair& pair_of(std::size_t link, std::size_t place) {
    auto at = device.pairs.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(link * (writes_count() + 1) + place));
    return *at->second;
  }
};
INSTANTIATE_TEST_SUITE_P(Queues, ReceiveErrorTest, testing::Values(0, 1, 3));

TEST_P(ReceiveErrorTest, EndsItsLinkWithTheCause) {
  post_some();
  device.fail_receive(last_pair(), IBV_WC_LOC_LEN_ERR);
  // A flushed operation may complete later: no thread waits for it.
  for (FakeCompletionQueue* queue : device.completion_queues)
    queue->completions.resize(std::min<std::size_t>(queue->completions.size(), 1));
  expect_ended(error_of(IBV_WC_LOC_LEN_ERR));
}

TEST_P(ReceiveErrorTest, EndsAnIdleLink) {
  device.fail_receive(last_pair(), IBV_WC_LOC_PROT_ERR);
  (void)must(endpoints[1]->poll(64));
  expect_dead(error_of(IBV_WC_LOC_PROT_ERR));
}

TEST_P(ReceiveErrorTest, AFlushedReceiveLeavesTheCauseToPostedOperations) {
  post_some();
  device.fail_receive(first_pair(), IBV_WC_WR_FLUSH_ERR, IBV_WC_REM_ACCESS_ERR);
  expect_ended(error_of(IBV_WC_REM_ACCESS_ERR));
}

TEST_P(ReceiveErrorTest, AFlushedReceiveEndsAnIdleLink) {
  device.fail_receive(last_pair(), IBV_WC_WR_FLUSH_ERR);
  (void)must(endpoints[1]->poll(64));
  expect_dead(error_of(IBV_WC_WR_FLUSH_ERR));
}

TEST_P(ReceiveErrorTest, IsIgnoredOnADeadLink) {
  post_some();
  links[1]->end(error_of(IBV_WC_RETRY_EXC_ERR));
  for (const ibv_wc_status status : {IBV_WC_WR_FLUSH_ERR, IBV_WC_LOC_LEN_ERR})
    device.fail_receive(last_pair(), status);
  expect_ended(error_of(IBV_WC_RETRY_EXC_ERR));
}

TEST_P(ReceiveErrorTest, IsIgnoredOnAClosedLink) {
  const std::uint32_t before = last_pair().qp_num;
  for (const ibv_wc_status status : {IBV_WC_WR_FLUSH_ERR, IBV_WC_LOC_LEN_ERR})
    device.fail_receive(last_pair(), status);
  for (auto& link : links) link.reset();
  connect();
  ASSERT_NE(last_pair().qp_num, before);
  carry(1);
  settle(1);
  EXPECT_TRUE(links[1]->failure().ok());
  expect_works(links, 1);
  expect_works(others, 0);
}

// As a device may give it again at once.
TEST_P(ReceiveErrorTest, OfAClosedLinkIsIgnoredOnALaterOneOfThatNumber) {
  const std::uint32_t before = last_pair().qp_num, first = first_of_later_link().qp_num;
  device.fail_receive(last_pair(), IBV_WC_LOC_LEN_ERR);
  EXPECT_FALSE(endpoints[1]->arm(net::Wake::all)) << "it has come, and waits for a poll";
  for (auto& link : links) link.reset();
  device.next_number = first;
  connect();
  ASSERT_EQ(last_pair().qp_num, before);
  carry(1);
  settle(1);
  EXPECT_TRUE(links[1]->failure().ok());
  expect_receives();
  expect_works(links, 1);
}

// However many fail: immediates over the others still find as many receives as were reserved.
TEST_P(ReceiveErrorTest, TakesNoReceiveFromOthers) {
  for (int round = 0; round < 10; ++round) {
    for (std::uint32_t i = 0; i < kReserved; ++i)
      device.fail_receive(last_pair(), i == 0 ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR);
    settle(1);
    expect_receives();
  }
  expect_dead(error_of(IBV_WC_LOC_LEN_ERR));
}

}  // namespace
}  // namespace larklane::verbs
