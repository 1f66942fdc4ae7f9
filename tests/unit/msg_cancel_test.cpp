// Cancel of ordinary messages' sends, over shared memory inside one process.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "msg/protocol/communicator.hpp"
#include "unit/communicator_job.hpp"

namespace larklane::msg {
namespace {

/// Cancel of sends after their records are out. The peer makes no progress by itself.
class CancelTest : public CommunicatorBase, public testing::WithParamInterface<Lanes> {
 protected:
  CancelTest() : CommunicatorBase(options_of(GetParam(), over_shm())), all_(open_all(1)) {
    for (std::uint64_t tag : {1u, 2u}) {
      send(*all_[0], 1, static_cast<std::uint32_t>(tag), bytes_of(tag));
      expect_value(*all_[1], 0, static_cast<std::int64_t>(tag), tag);
    }
    job_.settle();
  }
  Pending& send_one(std::vector<std::byte>& from) {
    return *send(*all_[0], 1, 1, bytes_of(from), Mode::synchronous);
  }
  /// Done without the peer.
  static void expect_cancelled(Pending& sent) {
    EXPECT_TRUE(Communicator::cancel(sent));
    ASSERT_TRUE(is_done(sent));
    EXPECT_TRUE(outcome(sent).is_cancelled);
    release(sent);
  }
  /// The peer has answered each offer.
  void expect_no_answer_is_missing() {
    job_.settle();
    for (std::uint32_t lane = 0; lane < engine(0).lane_count_max(); ++lane)
      if (MessageLane* const made = engine(0).find_lane(lane)) {
        EXPECT_EQ(made->awaited().count(), 0u);
      }
  }

  const std::vector<Communicator*> all_;
  static constexpr std::uint64_t kSizes[] = {0, 8, kEager, kEager + 1, std::uint64_t{1} << 20};
};

INSTANTIATE_TEST_SUITE_P(On, CancelTest, testing::Values(Lanes::one, Lanes::by_tag), name_of);

TEST_P(CancelTest, AnUnmatchedSendIsCancelledWithoutThePeer) {
  for (const bool has_arrived : {false, true})
    for (const std::uint64_t bytes : kSizes) {
      SCOPED_TRACE(std::to_string(bytes) + (has_arrived ? ", unexpected" : ", in the ring"));
      auto from = random_bytes(bytes, 1);
      std::uint64_t value = bytes + 1;
      Pending& sent = send_one(from);
      if (has_arrived) job_.settle();
      expect_cancelled(sent);
      from = {};
      send(*all_[0], 1, 1, bytes_of(value));
      expect_value(*all_[1], has_arrived ? 0 : kAnySource, 1, value);
      expect_no_answer_is_missing();
    }
}

TEST_P(CancelTest, AReceiveKeepsItsPlaceBehindAWithdrawnOffer) {
  for (const bool is_exact : {true, false})
    for (const std::uint64_t bytes : kSizes) {
      auto from = random_bytes(bytes, 1);
      std::vector<std::uint64_t> into(2);
      const std::int64_t tag = is_exact ? 1 : kAnyTag;
      Pending& first = receive(*all_[1], 0, tag, bytes_of(into[0]));
      Pending& second = receive(*all_[1], 0, tag, bytes_of(into[1]));
      expect_cancelled(send_one(from));
      for (std::uint64_t value : {11u, 12u}) send(*all_[0], 1, 1, bytes_of(value));
      EXPECT_TRUE(finish(&second).status.ok());
      EXPECT_TRUE(finish(&first).status.ok());
      EXPECT_EQ(into, (std::vector<std::uint64_t>{11, 12}));
      expect_no_answer_is_missing();
    }
}

TEST_P(CancelTest, AMatchedOrShownSendIsTooLateToCancel) {
  for (const bool is_shown : {true, false})
    for (const std::uint64_t bytes : kSizes) {
      auto from = random_bytes(bytes, 1);
      std::vector<std::byte> into(bytes);
      Pending* received = nullptr;
      if (!is_shown) received = &receive(*all_[1], 0, 1, bytes_of(into));
      Pending& sent = send_one(from);
      Envelope seen{};
      for (int i = 0; i < 20; ++i) (void)engine(1).progress_all();
      if (is_shown) {
        EXPECT_TRUE(all_[1]->look(0, 1, &seen));
      }
      EXPECT_FALSE(Communicator::cancel(sent));
      if (is_shown) received = &receive(*all_[1], kAnySource, 1, bytes_of(into));
      EXPECT_TRUE(finish(received).status.ok());
      EXPECT_EQ(into, from);
      EXPECT_FALSE(finish(&sent).is_cancelled);
      expect_no_answer_is_missing();
    }
}

TEST_P(CancelTest, WithdrawnOffersAreDroppedByProbesAndReceives) {
  for (const bool probes : {true, false}) {
    std::vector<std::vector<std::byte>> from(50, random_bytes(8, 1));
    from[7] = random_bytes(5000, 2);
    std::vector<Pending*> sent;
    sent.reserve(from.size());
    for (auto& bytes : from) sent.push_back(&send_one(bytes));
    job_.settle();
    for (unsigned i = 0; i < sent.size(); ++i)
      if (i != 30) expect_cancelled(*sent[i]);
    Envelope seen{};
    if (probes) {
      EXPECT_TRUE(all_[1]->look(kAnySource, 1, &seen));
    }
    std::vector<std::byte> into(8);
    EXPECT_TRUE(finish(&receive(*all_[1], 0, 1, bytes_of(into))).status.ok());
    EXPECT_EQ(into, from[30]);
    EXPECT_FALSE(finish(sent[30]).is_cancelled);
    EXPECT_FALSE(all_[1]->look(0, 1, &seen));
    EXPECT_EQ(all_[1]->take(0, 1, &seen), nullptr);
    EXPECT_EQ(all_[1]->match_counts().waiting, 0u);
    expect_no_answer_is_missing();
  }
}

TEST_P(CancelTest, ASendToAClosedCommunicatorIsCancelled) {
  for (const bool is_closed_first : {true, false}) {
    auto from = random_bytes(8, 1), more = random_bytes(5000, 2);
    const auto all = open_all(is_closed_first ? 2 : 3);
    if (is_closed_first) all[1]->close();
    Pending* const one = send(*all[0], 1, 1, bytes_of(from), Mode::synchronous);
    Pending* const other = send(*all[0], 1, 1, bytes_of(more));
    job_.settle();
    if (!is_closed_first) all[1]->close();
    expect_cancelled(*one);
    expect_cancelled(*other);
    expect_no_answer_is_missing();
    all[0]->close();
  }
}

TEST_P(CancelTest, ASendToThisProcessIsCancelled) {
  auto from = random_bytes(8, 1);
  Pending* const sent = send(*all_[0], 0, 1, bytes_of(from), Mode::synchronous);
  job_.settle();
  expect_cancelled(*sent);
  Envelope seen{};
  EXPECT_FALSE(all_[0]->look(0, 1, &seen));
  expect_no_answer_is_missing();
}

}  // namespace
}  // namespace larklane::msg
