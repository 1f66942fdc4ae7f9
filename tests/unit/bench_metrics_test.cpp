// Metrics on traces written by hand; the numbers were worked out on paper.

#include <gtest/gtest.h>

#include "measure/metrics.hpp"
#include "measure/offset.hpp"
#include "measure/series.hpp"

namespace larklane::bench {
namespace {

/// Three partitions of 100 bytes: two overlap, one comes late and crosses the join.
///   0: 10 ........ 30        1: 20 ... 50        2: 100 ........ 130        joined 110
RoundTrace three() { return {{{10, 30, 100}, {20, 50, 100}, {100, 130, 100}}, {30, 50, 130}, 110}; }

TEST(Metrics, OfThreePartitions) {
  const RoundTrace trace = three();
  EXPECT_EQ(total_ns(trace), 120);
  EXPECT_EQ(exposed_ns(trace), 20);
  EXPECT_EQ(communication_ns(trace), 40 + 30);
  EXPECT_EQ(after_join_ns(trace), 20);
  EXPECT_EQ(before_join_ns(trace), 40);
  EXPECT_DOUBLE_EQ(early_bird_share(trace), 40.0 / 70);
  EXPECT_DOUBLE_EQ(early_bytes_share(trace), 2.0 / 3);
  EXPECT_EQ(extra_compute_ns(trace), 100);
  EXPECT_DOUBLE_EQ(perceived_bandwidth(trace), 300 / 20e-9);
}

// The original suite forgot the end of the longer one.
TEST(Metrics, ATransferInsideOfAnotherAddsNothing) {
  const RoundTrace trace{{{0, 100, 1}, {20, 30, 1}, {90, 95, 1}}, {100}, 200};
  EXPECT_EQ(communication_ns(trace), 100);
  EXPECT_EQ(before_join_ns(trace), 100);
}

TEST(Metrics, OrderDoesNotMatter) {
  RoundTrace trace = three();
  std::swap(trace.transfers[0], trace.transfers[2]);
  std::swap(trace.arrivals_ns[0], trace.arrivals_ns[2]);
  EXPECT_EQ(communication_ns(trace), 70);
  EXPECT_EQ(extra_compute_ns(trace), 100);
  EXPECT_EQ(total_ns(trace), 120);
}

// Everything is marked early, and sent in Wait.
TEST(Metrics, SendingInWaitIsNotEarly) {
  const RoundTrace trace{{{0, 150, 8}, {10, 150, 8}, {100, 150, 8}}, {150, 150, 150}, 100};
  EXPECT_EQ(early_bird_share(trace), 0);
  EXPECT_EQ(early_bytes_share(trace), 0);
  EXPECT_EQ(exposed_ns(trace), 50);
  EXPECT_EQ(extra_compute_ns(trace), 0);
  EXPECT_EQ(availability(after_join_ns(trace), 50), 0);
}

// Two messages of 100 bytes to two receivers, in two partitions each:
//   0: 10 ... 30 and 50 ... 60     1: 10 ... 40 and 50 ... 90     joined 50
TEST(Metrics, OfTwoReceivers) {
  const RoundTrace trace{
      {{10, 30, 50}, {50, 60, 50}, {10, 40, 50}, {50, 90, 50}}, {30, 60, 40, 90}, 50, 2};
  EXPECT_EQ(exposed_ns(trace), 40);
  EXPECT_EQ(communication_ns(trace), 30 + 40);
  EXPECT_DOUBLE_EQ(perceived_bandwidth(trace), 200 / 40e-9);
  EXPECT_DOUBLE_EQ(early_bytes_share(trace), 0.5);
  EXPECT_EQ(extra_compute_ns(trace), (30 + 50) / 2.0);
}

TEST(Metrics, OfTwoTimes) {
  EXPECT_EQ(overhead(30, 20), 1.5);
  EXPECT_EQ(availability(0, 20), 1);
  EXPECT_EQ(availability(5, 20), 0.75);
  EXPECT_EQ(availability(30, 20), -0.5);  // not clamped
}

TEST(Transfers, AsManyPartitionsOnBothSides) {
  const auto transfers = transfers_of({1, 2}, {10, 20}, 64);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_EQ(transfers[0].end_ns, 10);
  EXPECT_EQ(transfers[1].end_ns, 20);
  EXPECT_EQ(transfers[0].bytes, 32u);
}

// Four send partitions on three receive partitions: 0 lies in {0}, 1 in {0, 1}, 2 in {1, 2}, 3 in
// {2}.
TEST(Transfers, APartitionHasArrivedWhenAllThatShareAByteHave) {
  const auto transfers = transfers_of({0, 0, 0, 0}, {10, 30, 20}, 12);
  EXPECT_EQ(transfers[0].end_ns, 10);
  EXPECT_EQ(transfers[1].end_ns, 30);
  EXPECT_EQ(transfers[2].end_ns, 30);
  EXPECT_EQ(transfers[3].end_ns, 20);
}

TEST(Transfers, OneReceivePartitionShowsOnlyTheEnd) {
  for (const Transfer& transfer : transfers_of({1, 2, 3}, {50}, 3)) EXPECT_EQ(transfer.end_ns, 50);
}

TEST(Transfers, NothingArrivesBeforeAllThatItHoldsIsReady) {
  EXPECT_FALSE(arrives_before_ready({1, 2}, {1, 2}, 0));
  EXPECT_TRUE(arrives_before_ready({1, 2}, {3, 1}, 0));
  EXPECT_TRUE(arrives_before_ready({1, 9}, {5}, 0)) << "one receive partition holds both";
  EXPECT_FALSE(arrives_before_ready({9, 1}, {10, 9, 3, 4}, 0));
  EXPECT_TRUE(arrives_before_ready({9, 1}, {10, 2, 10, 10}, 0))
      << "though the first quarter is late";
}

TEST(Transfers, AreNoEarlierThanTheClocksAllow) {
  EXPECT_FALSE(arrives_before_ready({1000}, {950}, -50));
  EXPECT_TRUE(arrives_before_ready({1000}, {949}, -50));
  EXPECT_TRUE(arrives_before_ready({1000}, {1099}, 100));
}

TEST(Clocks, AreAsFarApartAsTheyMayDrift) {
  const Offset first{1000, 50}, faster{1300, 40}, slower{900, 60};
  EXPECT_EQ(drifting(first, faster).offset_ns, 1300);
  EXPECT_EQ(drifting(first, faster).error_ns, 340);
  EXPECT_EQ(drifting(drifting(first, faster), slower).error_ns, 460) << "of the last change alone";
}

TEST(Headline, RefersToTheBaselinesMedian) {
  Series baseline{.way = "join"}, partitioned{.way = "partitioned"};
  baseline.samples = {{"total_ns", {10, 20, 30}}, {"after_join_ns", {10, 20, 30}}};
  partitioned.samples = {{"total_ns", {40, 60}}, {"after_join_ns", {5, 30}}};
  EXPECT_EQ(headline_values(*find_benchmark("overhead"), partitioned, baseline),
            (std::vector<double>{2, 3}));
  EXPECT_EQ(headline_values(*find_benchmark("availability"), partitioned, baseline),
            (std::vector<double>{75, -50}));
}

}  // namespace
}  // namespace larklane::bench
